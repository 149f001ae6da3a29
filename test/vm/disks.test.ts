import { createHash } from "node:crypto";
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import test, { type ExecutionContext } from "ava";
import { qcow2Of } from "../fixtures/disk-image.ts";
import { execIn, joinRig, type Rig } from "./daemon-rig.ts";

let rig: Rig;
let raw: string;
let qcow2: string;

test.serial.before(async () => {
  rig = await joinRig("quarantine_s = 0\n");
  raw = join(rig.directory, "a.raw");
  qcow2 = join(rig.directory, "b.qcow2");
  const content = Buffer.alloc(1 << 20, "0123456789abcdef");
  // podnetd alone can open them.
  writeFileSync(raw, content, { mode: 0o600 });
  writeFileSync(qcow2, qcow2Of(content, 1 << 26), { mode: 0o600 });
});
test.serial.after.always(async () => {
  await rig?.[Symbol.asyncDispose]();
});

const digest = (path: string): string =>
  createHash("sha256").update(readFileSync(path)).digest("hex");

async function shell(t: ExecutionContext, name: string, script: string): Promise<string> {
  const { output, code } = await execIn(rig.client, name, "sh", "-c", `exec 2>&1; ${script}`);
  t.is(code, 0, `${script}: ${output}`);
  return output.trimEnd();
}

const create = (name: string, disks: readonly object[]) =>
  rig.client.pods.create({ spec: { name, boot: { disks: [...disks] } } });
const remove = (name: string) => rig.client.pods.delete({ idOrName: name });
const overlays = (): string[] => readdirSync(join(rig.daemon.stateDir, "disks"));
const beginnings = "for disk in vda vdb; do head -c 7 /dev/$disk; echo; done";

test.serial(
  "what a pod writes is its own: not the image's, nor another pod's; it stays until the pod goes",
  async (t) => {
    const before = await rig.inventory();
    const images = [raw, qcow2].map(digest);
    const disks = [{ path: raw }, { path: qcow2, format: "qcow2" }, { path: raw, readOnly: true }];
    await create("one", disks);
    await create("two", disks);
    const sizes = "cat /sys/block/vd[abc]/size /sys/block/vd[abc]/serial /sys/block/vdc/ro";
    t.is(await shell(t, "one", sizes), "2048\n131072\n2048\ndisk0disk1disk21");
    await shell(
      t,
      "one",
      "for disk in vda vdb; do echo written | dd of=/dev/$disk conv=notrunc; done; dd if=/dev/zero of=/dev/vdb bs=1M seek=63 count=1; sync",
    );
    t.is(await shell(t, "one", beginnings), "written\nwritten");
    t.is(await shell(t, "two", beginnings), "0123456\n0123456");
    t.not((await execIn(rig.client, "one", "sh", "-c", "echo x > /dev/vdc")).code, 0);
    t.is(overlays().length, 2);

    await rig.client.pods.stop({ idOrName: "one" });
    t.is(overlays().length, 2);
    await rig.restart("kill");
    await rig.client.pods.start({ idOrName: "one" });
    t.is(await shell(t, "one", beginnings), "written\nwritten");
    t.is(await shell(t, "two", beginnings), "0123456\n0123456");
    await remove("one");
    t.is(await shell(t, "two", beginnings), "0123456\n0123456");
    await remove("two");
    t.deepEqual([raw, qcow2].map(digest), images);
    t.deepEqual(overlays(), []);
    t.deepEqual(await rig.changes(before), []);
  },
);

test.serial("a disk that is asked to is written through", async (t) => {
  await create("writer", [{ path: qcow2, format: "qcow2", writeThrough: true }]);
  await shell(t, "writer", "echo through | dd of=/dev/vda conv=notrunc; sync");
  t.deepEqual(overlays(), []);
  await remove("writer");
  await create("next", [{ path: qcow2, format: "qcow2" }]);
  t.is(await shell(t, "next", "head -c 7 /dev/vda"), "through");
  await remove("next");
});
