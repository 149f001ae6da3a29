import { statSync } from "node:fs";
import test from "ava";
import { PodState } from "../../api/gen/podnet/v1/pod_pb.ts";
import { execIn, joinRig } from "./daemon-rig.ts";

test.serial(
  "a pod stays as it was made, shut in or open, whatever the next podnetd does",
  async (t) => {
    await using rig = await joinRig("quarantine_s = 0\n");
    const pidOf = async (idOrName: string): Promise<number> => {
      const { pod } = await rig.client.pods.get({ idOrName });
      t.is(pod?.state, PodState.RUNNING);
      t.is((await execIn(rig.client, idOrName, "true")).code, 0);
      return pod?.vm?.pid ?? 0;
    };
    const open = { PODNET_QEMU_CONFINE: "off" };

    // A plan without a jail is what an earlier podnetd wrote.
    await rig.restart("stop", open);
    await rig.client.pods.create({ spec: { name: "open" } });
    const first = await pidOf("open");
    t.is(statSync(`/proc/${first}`).uid, statSync("/proc/self").uid);
    await rig.restart("kill");
    t.is(await pidOf("open"), first);

    await rig.client.pods.create({ spec: { name: "shut" } });
    const second = await pidOf("shut");
    t.true(statSync(`/proc/${second}`).uid >= 2_000_000_000);
    await rig.restart("kill", open);
    t.is(await pidOf("shut"), second);
    t.is(await pidOf("open"), first);

    for (const idOrName of ["open", "shut"]) await rig.client.pods.delete({ idOrName });
    // Compared with the podnetd of the beginning: one that shuts machines in holds its control
    // groups' directories open.
    await rig.restart("stop");
    t.deepEqual(await rig.changes(), []);
  },
);
