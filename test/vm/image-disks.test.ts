import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { readdirSync, readFileSync, statSync, truncateSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import test, { type ExecutionContext } from "ava";
import type { PodnetError } from "../../core/errors.ts";
import { bootDisk, qcow2Of } from "../fixtures/disk-image.ts";
import { joinRig, type Rig } from "./daemon-rig.ts";

let rig: Rig;
test.serial.before(async () => {
  rig = await joinRig("quarantine_s = 0\n");
  // The first import makes directories, which stay.
  await rig.daemon.podnet("image", "import", writeDisks().raw, "disk:1");
  await rig.client.images.prune({ all: true });
});
test.serial.after.always(async () => {
  await rig?.[Symbol.asyncDispose]();
});

const sha256 = (path: string): string =>
  `sha256:${createHash("sha256").update(readFileSync(path)).digest("hex")}`;

/** Files of a disk that says something when it boots: raw with a hole, and qcow2. */
function writeDisks(): { raw: string; qcow2: string } {
  const [raw, qcow2] = [join(rig.directory, "boot.raw"), join(rig.directory, "boot.qcow2")];
  const sectors = bootDisk("the image boots");
  writeFileSync(raw, sectors);
  truncateSync(raw, 16 << 20);
  writeFileSync(qcow2, qcow2Of(sectors, 1 << 26));
  return { raw, qcow2 };
}

async function whenSaid(t: ExecutionContext, name: string, words: string): Promise<void> {
  for (let attempt = 0; attempt < 600; attempt++) {
    if ((await rig.daemon.podnet("logs", "--console", name)).includes(words)) return;
    await delay(100);
  }
  t.fail(`${name} does not say "${words}"`);
}

const spec = (name: string, image: string, boot: object = {}) => ({
  name,
  boot: { image, agent: "none", ...boot },
});

/** Also when a test failed half way. */
const clear = async (): Promise<void> => {
  for (const idOrName of ["one", "two"])
    await rig.client.pods.delete({ idOrName, force: true }).catch(() => {});
  await rig.client.images.prune({ all: true });
};

test.serial("a disk in the store boots pods that share it, and none changes it", async (t) => {
  t.teardown(clear);
  const before = await rig.inventory();
  const { raw, qcow2 } = writeDisks();
  for (const [file, name] of [
    [raw, "disk:raw"],
    [qcow2, "disk:qcow2"],
  ] as const)
    await rig.daemon.podnet("image", "import", file, name);
  const { image } = await rig.client.images.get({ reference: "disk:raw" });
  t.like(image, { type: "disk", diskFormat: "raw", digest: sha256(raw), config: undefined });
  t.like((await rig.client.images.get({ reference: "disk:qcow2" })).image, {
    diskFormat: "qcow2",
    digest: sha256(qcow2),
  });
  const directory = join(rig.daemon.stateDir, "image-store");
  const stored = readdirSync(directory).filter((name) => name.endsWith(".img"));
  const files = stored.map((name) => join(directory, name));
  const sums = files.map(sha256);
  t.true(files.some((file) => statSync(file).size === 16 << 20 && statSync(file).blocks < 1024));

  await rig.client.pods.create({ spec: spec("one", "disk:raw") });
  await rig.client.pods.create({ spec: spec("two", "disk:qcow2") });
  await whenSaid(t, "one", "the image boots");
  await whenSaid(t, "two", "the image boots");
  t.like(await t.throwsAsync<PodnetError>(rig.client.images.remove({ reference: "disk:raw" })), {
    code: "IMAGE_IN_USE",
  });
  // What a pod has written is kept over a stop, as with any disk.
  await rig.client.pods.stop({ idOrName: "one", force: true });
  await rig.client.pods.start({ idOrName: "one" });
  await whenSaid(t, "one", "the image boots");
  for (const idOrName of ["one", "two"]) await rig.client.pods.delete({ idOrName, force: true });
  t.deepEqual(files.map(sha256), sums);
  for (const reference of ["disk:raw", "disk:qcow2"]) await rig.client.images.remove({ reference });
  t.deepEqual(await rig.changes(before), []);
});

test.serial("a disk that is not whole, or leads elsewhere, is no image", async (t) => {
  const before = await rig.inventory();
  const { qcow2 } = writeDisks();
  const whole = readFileSync(qcow2);
  const bad = join(rig.directory, "bad.qcow2");
  const refused = async (bytes: Uint8Array, why: RegExp): Promise<void> => {
    writeFileSync(bad, bytes);
    await t.throwsAsync(rig.daemon.podnet("image", "import", bad, "bad:1"), { message: why });
  };
  const changed = (change: (head: Buffer) => void): Buffer => {
    const bytes = Buffer.from(whole);
    change(bytes);
    return bytes;
  };
  await refused(
    changed((head) => head.writeBigUInt64BE(104n, 8)),
    /has a backing file/,
  );
  await refused(
    changed((head) => head.writeBigUInt64BE(4n, 72)),
    /its data in another file/,
  );
  await refused(whole.subarray(0, 4096), /cut short/);
  execFileSync("gzip", ["-kf", qcow2]);
  await refused(readFileSync(`${qcow2}.gz`), /a gzip of a qcow2 disk[^]*Uncompress/);
  t.deepEqual((await rig.client.images.list({})).images, []);
  t.deepEqual(await rig.changes(before), []);
});

test.serial("what a disk cannot have is refused, with its field", async (t) => {
  t.teardown(clear);
  const { raw } = writeDisks();
  await rig.daemon.podnet("image", "import", raw, "disk:1");
  const refused = async (asked: object, like: object): Promise<void> => {
    const thrown = await t.throwsAsync<PodnetError>(rig.client.pods.create({ spec: asked }));
    t.like(thrown, like, thrown?.message);
  };
  const image = "disk:1";
  await refused(
    { boot: { image }, process: { args: ["sh"] } },
    { code: "UNSUPPORTED", field: "process" },
  );
  await refused(spec("a", image, { layer: "persistent" }), {
    code: "UNSUPPORTED",
    field: "boot.layer",
  });
  await refused(spec("a", image, { factory: "template" }), {
    code: "UNSUPPORTED",
    field: "boot.factory",
  });
  await refused(spec("a", image, { cmdline: "quiet" }), {
    code: "INVALID_ARGUMENT",
    field: "boot.cmdline",
  });
  await rig.client.images.remove({ reference: image });
});
