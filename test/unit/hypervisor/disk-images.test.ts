import { execFileSync } from "node:child_process";
import {
  closeSync,
  ftruncateSync,
  mkdtempSync,
  openSync,
  readFileSync,
  rmSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test from "ava";
import { lookAtDisk } from "../../../hypervisor/disks/image-file.ts";
import { makeOwnFiles, removeOwnFilesOf } from "../../../hypervisor/disks/copy-on-write.ts";
import { openDisks } from "../../../hypervisor/disks/disks.ts";
import { emptyQcow2 } from "../../../hypervisor/disks/qcow2-copy.ts";

const directory = mkdtempSync(join(tmpdir(), "podnet-images-"));
test.after.always(() => rmSync(directory, { recursive: true, force: true }));

const mib = 2 ** 20;
const at = (name: string): string => join(directory, name);

/** A qcow2 image of no content, changed in its first bytes, cut to a length. */
function image(name: string, change: (head: Buffer) => void = () => {}, cut?: number): string {
  const { pieces, length } = emptyQcow2(64 * mib);
  const whole = Buffer.alloc(length);
  for (const piece of pieces) piece.data.copy(whole, piece.at);
  change(whole);
  writeFileSync(at(name), whole.subarray(0, cut));
  return at(name);
}

const why = (path: string, format: "raw" | "qcow2" = "qcow2"): string => {
  const found = lookAtDisk(path, format);
  return found.kind === "unreadable" ? found.why : found.kind;
};

test("what a qcow2 image may not be", (t) => {
  t.like(lookAtDisk(image("whole"), "qcow2"), { kind: "disk", bytes: 64 * mib });
  const cases: readonly (readonly [RegExp, (head: Buffer) => void])[] = [
    [/no qcow2|not a qcow2/, (head) => head.write("QFJ", "latin1")],
    [/version 4/, (head) => head.writeUInt32BE(4, 4)],
    [/backing file/, (head) => head.writeBigUInt64BE(104n, 8)],
    [/encrypted/, (head) => head.writeUInt32BE(2, 32)],
    [/corrupt/, (head) => head.writeBigUInt64BE(2n, 72)],
    [/another file/, (head) => head.writeBigUInt64BE(4n, 72)],
    [/feature/, (head) => head.writeBigUInt64BE(32n, 72)],
    [/clusters/, (head) => head.writeUInt32BE(22, 20)],
    [/no size/, (head) => head.writeBigUInt64BE(0n, 24)],
    [/whole sectors/, (head) => head.writeBigUInt64BE(513n, 24)],
    [/2 PiB/, (head) => head.writeBigUInt64BE(2n ** 52n, 24)],
    [/table too small/, (head) => head.writeBigUInt64BE(2n ** 40n, 24)],
    [/cut short/, (head) => head.writeBigUInt64BE(2n ** 40n, 40)],
    [/table where none can be/, (head) => head.writeBigUInt64BE(2n ** 63n, 48)],
    [/table where none can be/, (head) => head.writeBigUInt64BE(512n, 64)],
    [/too many snapshots/, (head) => head.writeUInt32BE(65_537, 60)],
    [/header of a length/, (head) => head.writeUInt32BE(103, 100)],
    [/compressed in a way/, (head) => head.writeBigUInt64BE(8n, 72)],
    [/another file/, (head) => head.writeBigUInt64BE(2n, 88)],
    [/extension that does not fit/, (head) => head.writeBigUInt64BE(0x1234_5678_ffff_ffffn, 104)],
    [/extension that does not fit/, (head) => head.writeUInt32BE(65_536, 108)],
    [/reference counts/, (head) => head.writeUInt32BE(0, 56)],
    [/reference counts/, (head) => head.writeUInt32BE(7, 96)],
  ];
  for (const [message, change] of cases) t.regex(why(image("wrong", change)), message);
  // Version 2 has no feature bits: what stands there is something else.
  const old = (head: Buffer): void => {
    head.writeUInt32BE(2, 4);
    head.writeBigUInt64BE(4n, 72);
  };
  t.is(why(image("old", old)), "disk");
});

test("a qcow2 image is cut short when what is in use lies beyond its end", (t) => {
  for (const length of [5, 80, 200, 65_536, 2 * 65_536, 3 * 65_536])
    t.regex(why(image("cut", () => {}, length)), /cut short/, `${length}`);
  // Clusters far behind the tables, as data lies: the counts report them.
  const far = (whole: Buffer): void => {
    whole.writeUInt16BE(1, 2 * 65_536 + 2 * 40);
  };
  t.regex(why(image("far", far)), /cut short/);
  const path = image("long", far);
  const fd = openSync(path, "r+");
  ftruncateSync(fd, 40 * 65_536 + 1);
  closeSync(fd);
  t.is(why(path), "disk");
});

test("what a raw disk may not be", (t) => {
  writeFileSync(at("empty"), "");
  writeFileSync(at("odd"), Buffer.alloc(513));
  writeFileSync(at("raw"), Buffer.alloc(1024));
  execFileSync("mkfifo", [at("pipe")]);
  t.regex(why(at("empty"), "raw"), /empty/);
  t.regex(why(at("odd"), "raw"), /whole sectors/);
  t.regex(why(at("pipe"), "raw"), /no regular file/);
  t.regex(why("/dev/zero", "raw"), /no regular file/);
  t.regex(why(directory, "raw"), /no regular file/);
  t.is(why(at("nothing"), "raw"), "missing");
  t.is(why(join(at("raw"), "below"), "raw"), "missing");
  t.like(lookAtDisk(at("raw"), "raw"), { kind: "disk", bytes: 1024, usedBy: undefined });
});

test("a pod's own file is begun empty, goes over its image alone, and goes", async (t) => {
  const path = at("base.raw");
  writeFileSync(path, Buffer.alloc(3 * mib));
  const found = lookAtDisk(path, "raw");
  if (found.kind !== "disk") throw new Error(found.kind);
  const over = {
    path: join(directory, "pods", "a", "0.qcow2"),
    bytes: found.bytes,
    over: found.mark,
  };
  const plan = { disks: [{ path, format: "raw", readOnly: false, overlay: over }] } as const;
  t.like(
    t.throws(() => openDisks(plan)),
    { code: "IMAGE_MISSING" },
  );
  await makeOwnFiles(plan);
  t.like(lookAtDisk(over.path, "qcow2"), { kind: "disk", bytes: 3 * mib });
  {
    using open = openDisks(plan);
    t.is(open.fds.length, 2);
  }
  // An earlier attempt's is begun anew.
  writeFileSync(over.path, "x".repeat(100));
  await makeOwnFiles(plan);
  t.not(readFileSync(over.path)[0], "x".charCodeAt(0));
  utimesSync(path, 1, 1);
  t.like(
    t.throws(() => openDisks(plan)),
    { code: "IMAGE_UNREADABLE", field: "boot.disks[0].path" },
  );
  await removeOwnFilesOf(plan);
  t.is(why(join(directory, "pods", "a")), "missing");
  await removeOwnFilesOf(plan);
});
