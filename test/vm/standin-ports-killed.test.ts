import { mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import test from "ava";
import { standInConfig } from "../lab/standin.ts";
import { openRig, type Rig } from "./daemon-rig.ts";
import { portsOf, socketAt } from "./ports-rig.ts";

let rig: Rig;
test.serial.before(async () => {
  rig = await openRig(await standInConfig(mkdtempSync(join(tmpdir(), "podnet-ports-"))));
});
test.serial.after.always(async () => {
  await rig?.[Symbol.asyncDispose]();
});
test.serial.afterEach.always(async () => {
  await rig.client.pods.delete({ idOrName: "web" });
});

const held = (port: number): Promise<boolean> => socketAt(rig.lab.host, port);

/** All elements that are the pod's, by which it is reached. */
const rulesOf = async (id: string | undefined): Promise<string[]> =>
  (await rig.lab.host.run("nft", "list", "table", "inet", "podnet_published"))
    .split("\n")
    .filter((line) => line.includes(`podnet:pod:${id}`));

// A publish that is to hold port 8110 alongside 8111, stopped before its row is durable and after.
for (const [point, durable] of [
  ["socket:hold a TCP port:before#2", false],
  ["socket:hold a TCP port:after#2", false],
  ["commit:replan:before#1", false],
  ["commit:replan:after#1", true],
  ["commit:flush:before#1", true],
  ["netlink:nftables add elements:before#1", true],
  ["netlink:nftables add elements:after#1", true],
] as const) {
  // (A commit that fails although it is there counts, and the publish goes on.)
  const counts = durable && point.endsWith(":after#1");
  const actions = counts ? ["kill"] : ["error", "kill"];
  for (const action of actions) {
    // What counts is what is written down: a podnetd that ended does not say which it was, and the
    // next one completes it.
    const completed = durable && action === "kill";
    const outcome = completed ? "is completed by the next podnetd" : "leaves nothing of its own";
    test.serial(`a publish that ends at ${point} by ${action} ${outcome}`, async (t) => {
      const { pod } = await rig.client.pods.create({
        spec: { name: "web", ports: portsOf("8109:80") },
      });
      // Rules that are refused are looked at anew and tried once more, for another program may have
      // changed them.
      const points = [point, ...(point.includes("nftables") ? [point.replace("#1", "#2")] : [])];
      const armed = points.map((each) => `${each}=${action}`);
      const from = "from:socket:ask for an address of the host:before";
      await rig.restart("stop", { PODNET_FAILPOINTS: [from, ...armed].join(";") });
      const ports = portsOf("*:8110-8111:80-81");
      const publish = rig.client.pods.publishPorts({ idOrName: "web", ports });
      await t.throwsAsync(publish);
      if (action === "kill") await rig.restart("kill");
      const now = async () => (await rig.client.pods.get({ idOrName: "web" })).pod;
      const deadline = performance.now() + 20_000;
      const entries = completed ? 2 : 1;
      while ((await now())?.spec?.ports.length !== entries && performance.now() < deadline)
        await delay(50);
      t.deepEqual(
        (await now())?.ports.map(({ hostPort }) => hostPort),
        completed ? [8109, 8110] : [8109],
      );
      const there = [await held(8109), await held(8110), await held(8111)];
      t.deepEqual(there, [true, completed, completed]);
      t.is((await rulesOf(pod?.id)).length > 0, completed);
      if (action === "kill") return;
      // Nothing stops it a second time.
      await rig.client.pods.publishPorts({ idOrName: "web", ports });
      t.deepEqual([await held(8110), await held(8111)], [true, true]);
      t.true((await rulesOf(pod?.id)).length > 0);
    });
  }
}
