import test from "ava";
import { type ImageLimits, mergeLayers } from "../../../images/layers/merge-layers.ts";
import { StreamSource } from "../../../images/tar/byte-source.ts";
import type { TarEntry } from "../../../images/tar/entry.ts";
import { encodeHeader, paxOf } from "../../../images/tar/header.ts";
import { encodePax } from "../../../images/tar/pax.ts";
import { readTar } from "../../../images/tar/read-tar.ts";

const blank: TarEntry = {
  path: "",
  kind: "file",
  mode: 0o644,
  uid: 0,
  gid: 0,
  mtime: 0,
  size: 0,
  target: "",
  major: 0,
  minor: 0,
  xattrs: new Map(),
};
const padded = (bytes: Uint8Array): Uint8Array =>
  Buffer.concat([bytes, Buffer.alloc((512 - (bytes.length % 512)) % 512)]);

type Line = Partial<TarEntry> & { readonly data?: string };

/** An archive of these entries. */
function archive(...entries: readonly Line[]): Uint8Array {
  return Buffer.concat([
    ...entries.flatMap(({ data = "", ...fields }) => {
      const entry = { ...blank, size: data.length, ...fields };
      const pax = encodePax(paxOf(entry));
      const before =
        pax.length === 0
          ? []
          : [encodeHeader({ ...blank, path: "pax", size: pax.length }, "x"), padded(pax)];
      return [...before, encodeHeader(entry), padded(Buffer.from(data, "latin1"))];
    }),
    Buffer.alloc(1024),
  ]);
}

async function* streamOf(bytes: Uint8Array): AsyncGenerator<Uint8Array> {
  for (let at = 0; at < bytes.length; at += 700) yield bytes.subarray(at, at + 700);
}

const merge = (layers: readonly Uint8Array[], limits: Partial<ImageLimits> = {}) =>
  mergeLayers(
    layers.map((bytes) => () => streamOf(bytes)),
    { entries: 1000, bytes: 2 ** 30, ...limits },
  );

/** The paths of merged layers with what lies there. */
async function shown(...layers: readonly Uint8Array[]): Promise<Record<string, string>> {
  const { archive: merged } = await merge(layers);
  const found: Record<string, string> = {};
  for await (const { entry, body } of readTar(new StreamSource(merged))) {
    const parts: Uint8Array[] = [];
    for await (const part of body()) parts.push(part);
    const data = Buffer.concat(parts).toString("latin1");
    found[entry.path] =
      { file: data, hardlink: `= ${entry.target}`, symlink: `-> ${entry.target}` }[
        entry.kind as string
      ] ?? entry.kind;
  }
  return found;
}

const file = (path: string, data: string): Line => ({ path, data });
const link = (path: string, target: string): Line => ({ path, target, kind: "symlink" });
const hard = (path: string, target: string): Line => ({ path, target, kind: "hardlink" });
const directory = (path: string): Line => ({ path, kind: "directory", mode: 0o755 });

test("a whiteout hides what lower layers have, wherever it stands in its own", async (t) => {
  const lower = archive(directory("d"), file("d/a", "1"), file("d/b", "1"), file("c", "1"));
  t.deepEqual(await shown(lower, archive(file("d/.wh.a", ""), file(".wh.c", ""))), {
    "d/": "directory",
    "d/b": "1",
  });
  t.deepEqual(await shown(lower, archive(file("d/a", "2"), file("d/.wh.a", ""))), {
    "d/": "directory",
    "d/a": "2",
    "d/b": "1",
    c: "1",
  });
  for (const upper of [
    archive(file("d/new", "2"), file("d/.wh..wh..opq", "")),
    archive(file("d/.wh..wh..opq", ""), file("d/new", "2")),
  ])
    t.deepEqual(await shown(lower, upper), { "d/": "directory", "d/new": "2", c: "1" });
  t.deepEqual(await shown(lower, archive(file("d/.wh.d", ""), file("x/.wh.y", ""))), {
    "d/": "directory",
    "d/a": "1",
    "d/b": "1",
    c: "1",
  });
});

test("a path may change from a directory to a file and back", async (t) => {
  const lower = archive(directory("d"), file("d/a", "1"));
  const upper = archive(file("d", "2"));
  t.deepEqual(await shown(lower, upper), { d: "2" });
  t.deepEqual(await shown(lower, upper, archive(directory("d"), file("d/b", "3"))), {
    "d/": "directory",
    "d/b": "3",
  });
});

test("links on the way are followed within the image, never out of it", async (t) => {
  t.deepEqual(
    await shown(
      archive(directory("usr/lib"), link("lib", "usr/lib"), link("up", "../../../../etc")),
      archive(file("lib/x", "1"), file("up/passwd", "2")),
    ),
    {
      "etc/": "directory",
      "etc/passwd": "2",
      "usr/": "directory",
      "usr/lib/": "directory",
      "usr/lib/x": "1",
      lib: "-> usr/lib",
      up: "-> ../../../../etc",
    },
  );
  t.deepEqual(await shown(archive(link("a", "/etc"), file("a/x", "1"))), {
    "etc/": "directory",
    "etc/x": "1",
    a: "-> /etc",
  });
});

test("a hard link shares the file of a lower layer, also when the first path goes", async (t) => {
  t.deepEqual(
    await shown(archive(file("a", "1")), archive(hard("b", "a")), archive(file(".wh.a", ""))),
    { b: "1" },
  );
  t.deepEqual(await shown(archive(file("a", "1"), hard("b", "./a"), file("a", "2"))), {
    a: "2",
    b: "1",
  });
});

const hostile: Readonly<Record<string, readonly [RegExp, ...Uint8Array[]]>> = {
  "a path that leads out": [/leads out of the image/, archive(file("../x", ""))],
  "a path that leads out within": [/leads out/, archive(file("a/../../x", ""))],
  "a hard link that leads out": [/leads out/, archive(hard("x", "../../etc/shadow"))],
  "a whiteout that leads out": [/leads out/, archive(file("../.wh.x", ""))],
  "a hard link to nothing": [
    /is a hard link to "\/etc\/shadow"/,
    archive(hard("x", "/etc/shadow")),
  ],
  "a hard link to a directory": [/is no file/, archive(directory("d"), hard("x", "d"))],
  "a link in a circle": [
    /lies below what is no directory/,
    archive(link("a", "b"), link("b", "a"), file("a/x", "")),
  ],
  "a file below a file": [/no directory/, archive(file("a", ""), file("a/x", ""))],
  "a root that is a file": [/no directory/, archive(file(".", "x"))],
  "a tower of directories": [/lies too deep/, archive(file(`${"d/".repeat(1500)}x`, ""))],
  "links that grow": [
    /lies below what is no directory/,
    archive(link("a", "b/b"), link("b", "c/c"), link("c", "a/a"), file("a/x", "")),
  ],
  "a path with a zero byte": [
    /no kernel takes/,
    archive({ ...file("x".repeat(101), ""), path: `${"x".repeat(101)}\0y` }),
  ],
  "an end in a header": [/ends too early/, archive(file("a", "1")).subarray(0, 700)],
  "an end in a file": [/ends too early/, archive(file("a", "1".repeat(9999))).subarray(0, 4000)],
};

for (const [what, [said, ...layers]] of Object.entries(hostile))
  test(`refused: ${what}`, async (t) => {
    const thrown = await t.throwsAsync(merge(layers));
    t.is((thrown as Error & { code?: string }).code, "IMAGE_UNREADABLE");
    t.regex(thrown?.message ?? "", said);
  });

test("a file with holes beyond the limit is refused by its size, not written", async (t) => {
  const header = Buffer.from(encodeHeader({ ...blank, path: "holes" }, "S"));
  header.write("77777777777\0", 483, "latin1");
  header.fill(" ", 148, 156);
  const sum = header.reduce((all, byte) => all + byte);
  header.write(`${sum.toString(8).padStart(6, "0")}\0 `, 148, "latin1");
  await t.throwsAsync(merge([Buffer.concat([header, Buffer.alloc(1024)])]), {
    code: "LIMIT_REACHED",
  } as object);
});

test("a million entries are refused at the limit", async (t) => {
  const entry = encodeHeader({ ...blank, path: "x" });
  const many = async function* () {
    for (;;) yield entry;
  };
  await t.throwsAsync(mergeLayers([many], { entries: 5000, bytes: 1 }), {
    message: "The image has more than 5000 files",
  });
});

test("long names, large numbers and attributes of any bytes come through", async (t) => {
  const entry: TarEntry = {
    ...blank,
    path: `${"d".repeat(200)}/caf\u00e9`,
    uid: 2 ** 31,
    gid: 2 ** 31 - 1,
    mtime: 1_700_000_000,
    xattrs: new Map([["user.x", "\0\n=\u00ff 9"]]),
  };
  const { archive: merged } = await merge([archive(entry)]);
  const found: TarEntry[] = [];
  for await (const each of readTar(new StreamSource(merged))) found.push(each.entry);
  t.deepEqual(found.at(-1), entry);
});
