import test from "ava";
import { openRig, type Rig } from "./daemon-rig.ts";

let rig: Rig;

test.serial.before(async () => {
  rig = await openRig("quarantine_s = 0\n");
});
test.serial.after.always(async () => {
  await rig?.[Symbol.asyncDispose]();
});

/**
 * Where podnetd is killed: while the template is built, while it is written, and while a clone of
 * it starts.
 */
const begun = "file:make memory file podnet-memory:after";
const points = [
  `${begun}#1`,
  "spawn:qemu:after#1",
  "channel:hello:after#1",
  "qmp:migrate:after#1",
  "file:seal memory file podnet-memory:before#1",
  "spawn:qemu:after#2",
  "qmp:migrate-incoming:after#1",
  "channel:awake:after#1",
];

for (const point of points) {
  test.serial(`podnetd is killed at ${point}: its next start leaves nothing`, async (t) => {
    await rig.restart("stop", { PODNET_FAILPOINTS: `from:${begun};${point}=kill` });
    const ended = new Promise((resolve) => rig.daemon.process.once("exit", resolve));
    await t.throwsAsync(rig.client.pods.create({ spec: {} }), undefined, "the point is passed");
    await ended;
    await rig.restart("kill");
    t.deepEqual((await rig.client.pods.list({})).pods, []);
    t.deepEqual(await rig.changes(), []);
  });
}
