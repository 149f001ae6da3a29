import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { cpSync, globSync, mkdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import test, { type ExecutionContext } from "ava";
import type { PodnetError } from "../../core/errors.ts";
import { convertImage } from "../../images/convert-image.ts";
import { tarOf, writeDockerArchive } from "../unit/images/image-archive.ts";
import { execIn, joinRig, type Rig } from "./daemon-rig.ts";

const top = resolve(import.meta.dirname, "../..");

let rig: Rig;
let image: string;

test.serial.before(async () => {
  rig = await joinRig("quarantine_s = 0\n");
  image = join(rig.directory, "app.squashfs");
  const root = join(rig.directory, "app");
  const [busybox] = globSync("build/cache/image/busybox-static-*/bin/busybox", { cwd: top });
  if (busybox === undefined) throw new Error("No busybox: run scripts/build-image");
  for (const directory of ["bin", "etc", "srv", "tmp"])
    mkdirSync(join(root, directory), { recursive: true });
  cpSync(join(top, busybox), join(root, "bin/busybox"));
  for (const applet of ["sh", "cat", "grep", "ls"])
    symlinkSync("busybox", join(root, "bin", applet));
  writeFileSync(join(root, "etc/passwd"), "root:x:0:0::/:/bin/sh\nweb:x:1000:100::/srv:/bin/sh\n");
  writeFileSync(join(root, "srv/page"), "of the image\n");
  execFileSync("mksquashfs", [root, image, "-comp", "lz4", "-quiet", "-no-progress"]);
});
test.serial.after.always(async () => {
  await rig?.[Symbol.asyncDispose]();
});

const create = (name: string, path = image) =>
  rig.client.pods.create({
    spec: { name, boot: { cmdline: "podnet.root=vda", disks: [{ path, readOnly: true }] } },
  });

async function shell(t: ExecutionContext, name: string, script: string): Promise<string> {
  const { output, code } = await execIn(rig.client, name, "sh", "-c", `exec 2>&1; ${script}`);
  t.is(code, 0, `${script}: ${output}`);
  return output.trimEnd();
}

test.serial("a squashfs is the root of a pod, whose writes are its own", async (t) => {
  const before = await rig.inventory();
  const digest = createHash("sha256").update(readFileSync(image)).digest("hex");
  await create("one");
  await create("two");
  t.is(await shell(t, "one", "cat /srv/page"), "of the image");
  // Neither the initramfs nor its programs are there.
  t.is(await shell(t, "one", "ls / | grep -c -e init -e podnet || true"), "0");
  t.is(await shell(t, "one", "cat /proc/1/comm"), "init");
  t.regex(await shell(t, "one", "cat /proc/mounts"), /^podnet \/ overlay rw/m);
  t.is(await shell(t, "one", "cat /proc/sys/kernel/hostname"), "one");
  await shell(t, "one", "echo of one > /srv/page; echo x > /tmp/x");
  t.is(await shell(t, "one", "cat /srv/page"), "of one");
  t.is(await shell(t, "two", "cat /srv/page"), "of the image");
  t.is(createHash("sha256").update(readFileSync(image)).digest("hex"), digest);
  for (const idOrName of ["one", "two"]) await rig.client.pods.delete({ idOrName });
  t.deepEqual(await rig.changes(before), []);
});

test.serial("a container image in layers, converted, is the root of a pod", async (t) => {
  const upper = join(rig.directory, "upper");
  mkdirSync(join(upper, "srv"), { recursive: true });
  writeFileSync(join(upper, "srv/.wh.page"), "");
  writeFileSync(join(upper, "srv/notes"), "of the upper layer\n");
  const from = join(rig.directory, "app.tar");
  writeDockerArchive(from, { layers: [tarOf(join(rig.directory, "app")), tarOf(upper)] });
  const to = join(rig.directory, "layers.squashfs");
  await convertImage({
    from,
    to,
    name: undefined,
    architecture: "amd64",
    force: false,
    limits: { entries: 1000, bytes: 2 ** 30 },
  });
  await create("layers", to);
  t.is(await shell(t, "layers", "ls /srv; cat /srv/notes"), "notes\nof the upper layer");
  await rig.client.pods.delete({ idOrName: "layers" });
});

test.serial("a disk that is no squashfs ends the boot, and the error says why", async (t) => {
  const path = join(rig.directory, "empty.raw");
  writeFileSync(path, Buffer.alloc(1 << 20));
  const thrown = (await t.throwsAsync(create("bad", path))) as Error & Partial<PodnetError>;
  t.log(thrown.message, JSON.stringify(thrown.details), thrown.hint);
  t.regex(
    `${thrown.message} ${JSON.stringify(thrown.details)}`,
    /The disk \\?"vda\\?" cannot be the root/,
  );
});
