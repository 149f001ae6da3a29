import test from "ava";
import type { Rig } from "./daemon-rig.ts";
import { create, eventually, joinStandInRig } from "./standin-rig.ts";

let rig: Rig;
test.serial.before(async () => {
  rig = await joinStandInRig();
});
test.serial.after.always(async () => {
  await rig?.[Symbol.asyncDispose]();
});

test.serial(
  "a guest that restarts by itself is counted, and the pod's reason says so",
  async (t) => {
    // It restarts 1200 ms after each READY.
    const { reason, vm } = await create(rig.client, "again", "standin.agent=reset-after:1200");
    t.deepEqual([reason, vm?.guestRestarts], ["", 0]);
    const text = "the guest restarted by itself (restart 2)";
    const event = await eventually(rig.client, (each) => each.text === text, 0n);
    t.is(event.pod?.reason, text);
    t.is(event.pod?.vm?.guestRestarts, 2);
    const shown = await rig.daemon.podnet("get", "again");
    t.regex(shown, /^Reason +the guest restarted by itself \(restart \d+\)$/m);
    t.regex(shown, /^Restarts +[2-9]$/m);
    t.regex(await rig.daemon.podnet("list"), /again .* the guest restarted by itself/);
    await rig.client.pods.stop({ idOrName: "again", force: true });
    const { pod } = await rig.client.pods.start({ idOrName: "again" });
    t.is(pod?.vm?.guestRestarts, 0);
    await rig.client.pods.delete({ idOrName: "again", force: true });
  },
);
