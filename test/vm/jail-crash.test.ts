import test from "ava";
import { joinRig } from "./daemon-rig.ts";

/** The second of each: the first is the trial of a jail, when podnetd starts. */
const points = [
  "file:give run directory a group:after#2",
  "file:set pids.max:after#2",
  "file:make qemu.log:after#2",
  // QEMU runs, and no row reports it.
  "spawn:qemu:after#2",
];

test.serial(
  "podnetd killed while it shuts a machine in: the next one leaves nothing of it",
  async (t) => {
    await using rig = await joinRig("quarantine_s = 0\n");
    for (const point of points) {
      await rig.restart("kill", { PODNET_FAILPOINTS: `${point}=kill` });
      await t.throwsAsync(rig.client.pods.create({ spec: { name: "cut" } }), undefined, point);
      await rig.restart("kill");
      t.deepEqual(await rig.changes(), [], point);
    }
    // Killed during its own trial.
    for (const point of ["file:make cgroup:after#3", "spawn:qemu:after#1"]) {
      await t.throwsAsync(
        rig.restart("kill", { PODNET_FAILPOINTS: `${point}=kill` }),
        undefined,
        point,
      );
      await rig.restart("kill");
      t.deepEqual(await rig.changes(), [], point);
    }
    await rig.client.pods.create({ spec: { name: "after" } });
    await rig.client.pods.delete({ idOrName: "after" });
    t.deepEqual(await rig.changes(), []);
  },
);
