import { deepStrictEqual, ok } from "node:assert";
import { type TarEntry, TarReader } from "../../../cli/copy/tar-reader.ts";
import type { Random } from "../engine/random.ts";
import { type Target, utf8, valueOf } from "../engine/target.ts";

interface Fields {
  readonly name?: string;
  readonly type?: string;
  readonly data?: string;
  readonly target?: string;
  readonly size?: string;
  readonly prefix?: string;
}

/** One entry with a checksum that is right, and its bytes. */
function entry({
  name = "data",
  type = "0",
  data = "",
  target = "",
  size,
  prefix,
}: Fields): Buffer {
  const block = Buffer.alloc(512);
  block.write(name, 0, 100);
  block.write("0000644\0", 100);
  block.write(size ?? `${data.length.toString(8).padStart(11, "0")}\0`, 124, 12, "latin1");
  block.write("07346545000\0", 136);
  block.write(type, 156);
  block.write(target, 157, 100);
  block.write(prefix === undefined ? "ustar  \0" : "ustar\x0000", 257, "latin1");
  if (prefix !== undefined) block.write(prefix, 345, 155);
  block.fill(" ", 148, 156);
  const sum = block.reduce((all, byte) => all + byte);
  block.write(`${sum.toString(8).padStart(6, "0")}\0 `, 148);
  const padding = Buffer.alloc((512 - (data.length % 512)) % 512);
  return Buffer.concat([block, Buffer.from(data, "latin1"), padding]);
}

const end = Buffer.alloc(1024);
const pax = (text: string): string => {
  let length = text.length + 3;
  while (`${length} ${text}\n`.length !== length) length++;
  return `${length} ${text}\n`;
};
const entries: readonly Fields[] = [
  { data: "x" },
  { type: "5", name: "data/" },
  { name: "old/", type: "\0" },
  { type: "2", target: "../up" },
  { type: "1", target: "data" },
  { type: "3" },
  { type: "?" },
  { type: "5", data: "x" },
  { name: "f", prefix: "data/long" },
  { type: "L", data: "data/a-long-name\0" },
  { type: "K", data: "a-long-target\0" },
  { type: "L", data: "" },
  { type: "x", data: pax("path=data/p") + pax("mtime=1.5") },
  { type: "x", data: pax("linkpath=t") + pax("size=3") },
  { type: "x", data: pax("GNU.sparse.major=1") },
  { type: "x", data: pax("mtime=soon") },
  { type: "x", data: pax("size=-1") },
  { type: "x", data: "99 path=x\n" },
  { type: "g", data: pax("comment=x") },
  { size: "9".repeat(12) },
  { size: `\x80${"\0".repeat(10)}\x01`, data: "" },
  { size: "\x80".padEnd(12, "\xff") },
];

/** What a reader says of the bytes, in pieces of that size: entries, and the bytes of each file. */
function events(bytes: Uint8Array, piece: number): readonly object[] {
  const found: object[] = [];
  let open = false;
  let left = 0;
  const reader = new TarReader({
    entry: (each: TarEntry) => {
      ok(!open && each.size >= 0 && Number.isSafeInteger(each.size));
      open = each.kind === "file";
      left = each.size;
      found.push(each);
    },
    data: (part) => {
      left -= part.length;
      ok(open && left >= 0);
    },
    done: () => {
      ok(open && left === 0);
      open = false;
    },
  });
  const refused = valueOf(["AGENT_PROTOCOL"], () => {
    for (let at = 0; at < bytes.length; at += piece) reader.push(bytes.subarray(at, at + piece));
    reader.end();
    return true;
  });
  return [...found, { whole: refused === true }];
}

export const tar: Target = {
  name: "tar",
  files: ["cli/copy/tar-reader.ts"],
  seeds: [
    Buffer.concat([...entries.slice(0, 5).map(entry), end]),
    ...entries.map((each) => Buffer.concat([entry(each), entry({ data: "abc" }), end])),
    Buffer.concat([end, utf8("more")]),
    Buffer.alloc(600),
    Buffer.concat([Buffer.alloc(512), entry({})]),
  ],
  words: ["ustar", "path=", "linkpath=", "size=", "\0", "/", "../"],
  generate: (random: Random) =>
    Buffer.concat([
      ...random.list(random.below(5), () => entry(random.pick(entries))),
      ...(random.once(4) ? [] : [end]),
    ]),
  longest: 8192,
  run: (bytes) => deepStrictEqual(events(bytes, 1000), events(bytes, 333)),
};
