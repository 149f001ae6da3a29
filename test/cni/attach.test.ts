import test from "ava";
import { type CniRig, openCniRig } from "./cni-rig.ts";

let cni: CniRig;
test.serial.before(async () => {
  cni = await openCniRig();
});
test.serial.after.always(async () => {
  await cni?.[Symbol.asyncDispose]();
});

const bare = (prefix: string): string => prefix.slice(0, prefix.indexOf("/"));

test.serial(
  "a container gets its network, and reaches its gateway, another one, and the world",
  async (t) => {
    const [one, other] = [await cni.container(), await cni.container()];
    const added = await cni.done({ container: one });
    const address = bare(added.ips[0].address);
    t.is(added.ips[0].gateway, "192.168.123.1");
    t.deepEqual(
      added.interfaces.map(({ name, sandbox }: { name: string; sandbox?: string }) => [
        name,
        sandbox,
      ]),
      [
        ["hyper0", undefined],
        [added.interfaces[1].name, undefined],
        ["eth0", one.path],
      ],
    );
    t.is(
      added.interfaces[2].mac,
      `0a:58:${address
        .split(".")
        .map((byte) => Number(byte).toString(16).padStart(2, "0"))
        .join(":")}`,
    );
    const second = await cni.done({ container: other });
    await one.ping("192.168.123.1");
    await one.ping(bare(second.ips[0].address));
    await other.ping(address);
    await one.ping("203.0.113.10");
    t.deepEqual((await cni.links()).length, 2);
    for (const container of [one, other]) {
      t.is(await cni.done({ command: "DEL", container }), undefined);
      t.false(await container.reaches("192.168.123.1"));
    }
  },
);
