import test from "ava";
import { PodState } from "../../api/gen/podnet/v1/pod_pb.ts";
import { addressOf } from "./daemon-rig.ts";
import { openPortsRig, portsOf, type PortsRig } from "./ports-rig.ts";

let rig: PortsRig;
let address: string;
let atFirst: string;

test.serial.before(async () => {
  rig = await openPortsRig("quarantine_s = 0\n");
  atFirst = await rig.inventory();
  const ports = portsOf("8080:80");
  const { pod } = await rig.client.pods.create({ spec: { name: "one", ports } });
  address = addressOf(pod);
});
test.serial.after.always(async () => {
  await rig?.[Symbol.asyncDispose]();
});

const answers = (): Promise<unknown> => rig.lab.host.ping(address, 1);
const silent = (): Promise<string> =>
  rig.lab.host.run("sh", "-c", `! ping -n -c 2 -i 0.2 -W 1 ${address}`);
/** What its program answers by the published port, once it serves. */
const byPort = (): Promise<string> => rig.machine(rig.lab.host).ask("tcp", "127.0.0.1", 8080);
const podNow = async () => (await rig.client.pods.get({ idOrName: "one" })).pod;

test.serial(
  "a paused pod is stopped with its guest's help, and starts with what it had",
  async (t) => {
    const before = await podNow();
    await (await rig.pod("one")).serve("tcp", 80, "one");
    const asked = await byPort();
    t.regex(asked, /one/);
    await rig.client.pods.pause({ idOrName: "one" });
    const { pod } = await rig.client.pods.stop({ idOrName: "one" });
    t.is(pod?.state, PodState.STOPPED);
    t.is(pod?.vm, undefined);
    t.is(addressOf(pod), address);
    await silent();
    t.is((await rig.client.pods.stop({ idOrName: "one" })).pod?.state, PodState.STOPPED);
    await t.throwsAsync(rig.client.pods.pause({ idOrName: "one" }), {
      code: "WRONG_STATE",
      message: 'Pod "one" is stopped instead of running',
    });
    // No other pod gets the address of a stopped pod.
    await t.throwsAsync(rig.client.pods.create({ spec: { interfaces: [{ address }] } }), {
      code: "ADDRESS_IN_USE",
    });
    t.notRegex(await byPort(), /one/);
    await t.throwsAsync(rig.client.pods.create({ spec: { ports: portsOf("8080:80") } }), {
      code: "PORT_IN_USE",
    });
    const { pod: started } = await rig.client.pods.start({ idOrName: "one" });
    t.is(started?.state, PodState.RUNNING);
    t.is(addressOf(started), address);
    t.is(started?.interfaces[0]?.mac, before?.interfaces[0]?.mac);
    await answers();
    await (await rig.pod("one")).serve("tcp", 80, "one");
    t.is(await byPort(), asked);
    t.true((await rig.client.pods.verify({ idOrName: "one" })).ok);
  },
);

test.serial(
  "a running pod is stopped, with force too, and podnetd's next start leaves it so",
  async (t) => {
    for (const force of [false, true]) {
      await answers();
      await rig.client.pods.stop({ idOrName: "one", force });
      await silent();
      // The next podnetd has to boot a template anew: once is enough.
      if (force) await rig.restart("stop");
      t.is((await podNow())?.state, PodState.STOPPED);
      await rig.client.pods.start({ idOrName: "one" });
    }
    await answers();
  },
);

test.serial(
  "resources are those of the pod's creation: what differs is refused, with why",
  async (t) => {
    const { pod } = await rig.client.pods.update({
      idOrName: "one",
      resources: { vcpu: 1, memoryMib: 128 },
    });
    t.is(pod?.state, PodState.RUNNING);
    const error = await t.throwsAsync(
      rig.client.pods.update({ idOrName: "one", resources: { vcpu: 2, memoryMib: 256 } }),
      {
        code: "UNSUPPORTED",
        message: /vcpu 1 \(asked for 2\) and memory_mib 128 .*fixed when it is made/,
      },
    );
    t.like(error, { field: "resources.vcpu" });
    await t.throwsAsync(rig.client.pods.update({ idOrName: "none" }), { code: "POD_NOT_FOUND" });
  },
);

test.serial("nothing of a stopped pod is left once it is deleted", async (t) => {
  await rig.client.pods.stop({ idOrName: "one" });
  await rig.client.pods.delete({ idOrName: "one" });
  t.deepEqual(await rig.changes(atFirst), []);
});
