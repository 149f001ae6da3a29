import test from "ava";
import { PodState } from "../../api/gen/podnet/v1/pod_pb.ts";
import type { Rig } from "./daemon-rig.ts";
import { openStandInRig } from "./standin-rig.ts";

let rig: Rig;
test.serial.before(async () => {
  // Whoever waited for either time would not see the end of this test.
  rig = await openStandInRig("quarantine_s = 0\n[timeouts]\nstop_s = 600\npower_button_s = 600\n");
});
test.serial.after.always(async () => {
  await rig?.[Symbol.asyncDispose]();
});

test.serial(
  "a guest without an agent that is booting when it is asked to stop is asked again",
  async (t) => {
    const { pods } = rig.client;
    const boot = { agent: "none", cmdline: "standin.agent=power-button:2" };
    await pods.create({ spec: { name: "booting", boot } });
    t.is((await pods.stop({ idOrName: "booting" })).pod?.state, PodState.STOPPED);
    t.is((await pods.start({ idOrName: "booting" })).pod?.state, PodState.RUNNING);
    t.true((await pods.delete({ idOrName: "booting" })).existed);
    t.deepEqual(await rig.changes(), []);
  },
);

test.serial("one that knows no power button is not waited for with force", async (t) => {
  const { pods } = rig.client;
  await pods.create({ spec: { name: "deaf", boot: { agent: "none" } } });
  const stopped = await pods.stop({ idOrName: "deaf", force: true });
  t.is(stopped.pod?.state, PodState.STOPPED);
  await pods.delete({ idOrName: "deaf" });
  t.deepEqual(await rig.changes(), []);
});
