import { deepStrictEqual, ok } from "node:assert";
import { parseDigest } from "../../../images/archive/digest.ts";
import { formatOf } from "../../../images/archive/recognize.ts";
import { decodeHeader, encodeHeader, paxOf } from "../../../images/tar/header.ts";
import { decodePax, encodePax, type PaxRecords } from "../../../images/tar/pax.ts";
import { choosing, chosen, type Target, textOf, utf8, valueOf } from "../engine/target.ts";

const entry = {
  path: "a/b",
  kind: "file",
  mode: 0o644,
  uid: 1,
  gid: 2,
  mtime: 3,
  size: 4,
  target: "t",
  major: 5,
  minor: 6,
  xattrs: new Map(),
} as const;
const header = encodeHeader(entry);

/** A header with other bytes at a place, and the checksum that belongs to them. */
function changed(at: number, text: string): Uint8Array {
  const block = Buffer.from(header);
  block.write(text, at, "latin1");
  block.fill(" ", 148, 156);
  const sum = block.reduce((all, byte) => all + byte);
  block.write(`${sum.toString(8).padStart(6, "0")}\0 `, 148, "latin1");
  return block;
}

function checkHeader(bytes: Uint8Array): void {
  const block = Buffer.concat([bytes, Buffer.alloc(512)]).subarray(0, 512);
  const found = valueOf(["IMAGE_UNREADABLE"], () => decodeHeader(block));
  if (found === undefined) return;
  for (const value of [found.mode, found.uid, found.gid, found.size, found.mtime])
    ok(Number.isSafeInteger(value) && value >= 0);
  ok(!found.path.includes("\0") && !found.target.includes("\0"));
}

function checkPax(bytes: Uint8Array): void {
  const records: PaxRecords = new Map();
  const isWhole = valueOf(["IMAGE_UNREADABLE"], () => {
    decodePax(bytes, records);
    return true;
  });
  if (isWhole !== true) return;
  const again: PaxRecords = new Map();
  decodePax(encodePax(records), again);
  deepStrictEqual(again, records);
}

/** Headers of the archives that images and their layers are, and digests. */
export const imageArchives: Target = {
  name: "image-archives",
  files: ["images/tar/header.ts", "images/tar/pax.ts", "images/archive/digest.ts"],
  except: ["encodeHeader", "paxOf", "encodePax", "paxRecord", "hashLike", "digestOf"],
  seeds: [
    chosen(0, header),
    chosen(0, new Uint8Array(512)),
    chosen(0, changed(0, "\u00ff".repeat(100))),
    chosen(0, changed(124, "\u0080".padEnd(12, "\u00ff"))),
    chosen(0, changed(124, `\u0080${"\0".repeat(10)}\u0001`)),
    chosen(0, changed(124, "\u00ff".repeat(12))),
    chosen(0, changed(124, "9".repeat(12))),
    chosen(0, changed(345, "prefix")),
    chosen(0, changed(257, "ustar  \0")),
    chosen(1, encodePax([...paxOf({ ...entry, path: "x".repeat(200) }), ["mtime", "1.5"]])),
    chosen(1, utf8("6 a=b\n")),
    chosen(1, utf8("6 a=b")),
    chosen(1, utf8("99 a=b\n")),
    chosen(1, utf8("06 a=b\n")),
    chosen(1, utf8("5 ab\n6 a=b\n")),
    chosen(2, utf8(`sha256:${"0".repeat(64)}`)),
    chosen(2, utf8("sha256:0")),
    chosen(3, utf8("KDMV")),
    chosen(3, utf8(" <html>")),
    chosen(3, utf8("{")),
  ],
  words: ["ustar\0", "path=", "SCHILY.xattr.", "\n", " ", "=", "sha512:"],
  run: choosing([
    checkHeader,
    checkPax,
    (bytes) => void valueOf(["IMAGE_UNREADABLE"], () => parseDigest(textOf(bytes))),
    (bytes) => void formatOf(bytes),
  ]),
};
