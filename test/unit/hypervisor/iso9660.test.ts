import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import test from "ava";
import { iso9660 } from "../../../hypervisor/disks/iso9660.ts";
import { run } from "../../../linux/processes/command.ts";

const files = { "meta-data": "instance-id: a\n", "user-data": "#!".padEnd(5000, "x") };

test("util-linux takes it for a volume of its name, as cloud-init finds it", async (t) => {
  const folder = mkdtempSync(path.join(tmpdir(), "iso-"));
  t.teardown(() => rmSync(folder, { recursive: true }));
  const file = path.join(folder, "seed");
  writeFileSync(file, iso9660("cidata", files));
  const { stdout } = await run(["blkid", "-p", "-o", "export", file]);
  t.regex(stdout, /^LABEL=cidata$/m);
  t.regex(stdout, /^TYPE=iso9660$/m);
});

test("every file is where its record says, under its own name", (t) => {
  const image = Buffer.from(iso9660("cidata", files));
  const root = image.readUInt32LE(16 * 2048 + 156 + 2) * 2048;
  const found: Record<string, string> = {};
  for (let at = root; (image[at] ?? 0) > 0; at += image[at] ?? 0) {
    const record = image.subarray(at, at + (image[at] ?? 0));
    const named = record.indexOf("NM");
    if (named < 0) continue;
    const name = record.subarray(named + 5, named + (record[named + 2] ?? 0)).toString();
    const from = record.readUInt32LE(2) * 2048;
    t.is(record.readUInt32LE(2), record.readUInt32BE(6));
    found[name] = image.subarray(from, from + record.readUInt32LE(10)).toString();
  }
  t.deepEqual(found, files);
  t.is(image.length, image.readUInt32LE(16 * 2048 + 80) * 2048);
});

test("the same files give the same disk, and no directory grows beyond its sector", (t) => {
  t.deepEqual(iso9660("cidata", files), iso9660("cidata", files));
  const many = Object.fromEntries(Array.from({ length: 60 }, (_, i) => [`file-${i}`, ""]));
  t.throws(() => iso9660("cidata", many), { instanceOf: RangeError });
});
