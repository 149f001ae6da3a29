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

/** All rules that are the pod's. */
const rulesOf = async (id: string | undefined): Promise<string[]> =>
  (await rig.lab.host.run("iptables-save"))
    .split("\n")
    .filter((line) => line.includes(`podnet:pod:${id}`));

// What a publish that is to hold port 8110 beside 8111 leaves of its own when it is stopped there.
for (const point of [
  "socket:hold a TCP port:before#2",
  "socket:hold a TCP port:after#2",
  "command:iptables-nft-restore:before#1",
  "command:iptables-nft-restore:after#1",
  "commit:settled:before#1",
]) {
  for (const action of ["error", "kill"] as const) {
    test.serial(
      `a publish that ends at ${point} by ${action} leaves nothing of its own`,
      async (t) => {
        const { pod } = await rig.client.pods.create({
          spec: { name: "web", ports: portsOf("8109:80") },
        });
        // Rules that are refused are looked at anew and tried once more, for another program may have changed them.
        const points = [
          point,
          ...(point.startsWith("command:") ? [point.replace("#1", "#2")] : []),
        ];
        const armed = points.map((each) => `${each}=${action}`);
        const PODNET_FAILPOINTS = ["from:commit:replan:before", ...armed].join(";");
        await rig.restart("stop", { PODNET_FAILPOINTS });
        const ports = portsOf("*:8110-8111:80-81");
        const publish = rig.client.pods.publishPorts({ idOrName: "web", ports });
        await t.throwsAsync(publish);
        if (action === "kill") await rig.restart("kill");
        const now = async () => (await rig.client.pods.get({ idOrName: "web" })).pod;
        const deadline = performance.now() + 20_000;
        while (((await now())?.spec?.ports.length ?? 0) > 1 && performance.now() < deadline)
          await delay(50);
        t.deepEqual(
          (await now())?.ports.map(({ hostPort }) => hostPort),
          [8109],
        );
        t.deepEqual([await held(8109), await held(8110), await held(8111)], [true, false, false]);
        t.deepEqual(await rulesOf(pod?.id), []);
        if (action === "kill") return;
        // Nothing stops it a second time.
        await rig.client.pods.publishPorts({ idOrName: "web", ports });
        t.deepEqual([await held(8110), await held(8111)], [true, true]);
        t.true((await rulesOf(pod?.id)).length > 0);
      },
    );
  }
}
