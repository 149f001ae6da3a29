import test from "ava";
import { execIn, joinRig, type Rig } from "./daemon-rig.ts";

let rig: Rig;

test.serial.before(async () => {
  rig = await joinRig("quarantine_s = 0\n");
});
test.serial.after.always(async () => {
  await rig?.[Symbol.asyncDispose]();
});

const shell = async (script: string): Promise<string> =>
  (await execIn(rig.client, "with-files", "sh", "-c", script)).output.trimEnd();

test.serial("a pod has its files when it runs, after a stop and a start too", async (t) => {
  const before = await rig.inventory();
  const content = Buffer.from("of the spec\n");
  const files = [
    { path: "/etc/app/app.conf", content, mode: 0o640, uid: 7, gid: 8 },
    { path: "/srv/large", content: Buffer.alloc(262_144, "x") },
  ];
  const idOrName = "with-files";
  const { pod } = await rig.client.pods.create({ spec: { name: idOrName, files } });
  const shown = pod?.spec?.files.map((each) => Buffer.from(each.content).toString());
  t.deepEqual(shown, ["(12 bytes, not shown)", "(262144 bytes, not shown)"]);
  const look = "stat -c '%a %u:%g %s' /etc/app/app.conf /srv/large; cat /etc/app/app.conf";
  const there = "640 7:8 12\n644 0:0 262144\nof the spec";
  t.is(await shell(look), there);
  // What the pod makes of them is its own: a podnetd that starts again leaves it.
  await shell("echo changed > /etc/app/app.conf");
  await rig.restart("kill");
  t.is(await shell("cat /etc/app/app.conf"), "changed");
  await rig.client.pods.stop({ idOrName });
  await rig.client.pods.start({ idOrName });
  t.is(await shell(look), there);
  await rig.client.pods.delete({ idOrName });
  t.deepEqual(await rig.changes(before), []);
});
