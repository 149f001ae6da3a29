import test from "ava";
import { mergeLayers } from "../../images/layers/merge-layers.ts";
import { type Choice, readImage } from "../../images/archive/image.ts";
import { StreamSource } from "../../images/tar/byte-source.ts";
import { encodeHeader, paxOf } from "../../images/tar/header.ts";
import { encodePax } from "../../images/tar/pax.ts";
import { entryKinds, type TarEntry } from "../../images/tar/entry.ts";
import { readTar } from "../../images/tar/read-tar.ts";
import { isPodnetError } from "../../core/errors.ts";
import { Random, runSeed } from "./engine/random.ts";
import { mutate } from "./engine/mutate.ts";
import type { Target } from "./engine/target.ts";

// `fuzz` feeds parsers that are done when they return. These read streams, so they run here.

const rounds = process.env["PODNET_TEST_FULL"] === "1" ? 100_000 : 3000;
/** What mutations put in. */
const target: Target = {
  name: "image-layers",
  files: [],
  seeds: [],
  words: ["ustar", "\0", ".wh.", "..", "null", "{}"],
  longest: 2 ** 16,
  run: () => {},
};

const padded = (bytes: Uint8Array): Uint8Array =>
  Buffer.concat([bytes, Buffer.alloc((512 - (bytes.length % 512)) % 512)]);

const names = ["a", "b", "d", ".wh.a", ".wh..wh..opq", "..", ".", "", "x".repeat(120), "\u00e9"];
const pathOf = (random: Random): string =>
  random.list(1 + random.below(4), () => random.pick(names)).join("/");

function entryOf(random: Random): TarEntry {
  const kind = random.pick(entryKinds);
  return {
    path: pathOf(random),
    kind,
    mode: random.below(0o10000),
    uid: random.once(5) ? 2 ** 31 : random.below(3),
    gid: 0,
    mtime: random.below(9),
    size: kind === "file" ? random.below(1200) : 0,
    target: random.once(3) ? `/${pathOf(random)}` : pathOf(random),
    major: 1,
    minor: 3,
    xattrs: random.once(4) ? new Map([["user.a", "\0\n="]]) : new Map(),
  };
}

function layerOf(random: Random): Uint8Array {
  const parts: Uint8Array[] = [];
  for (let left = random.below(8); left > 0; left -= 1) {
    const entry = entryOf(random);
    const pax = encodePax(paxOf(entry));
    if (pax.length > 0)
      parts.push(
        encodeHeader({ ...entry, path: "p", target: "", uid: 0, size: pax.length }, "x"),
        padded(pax),
      );
    const type = random.once(20) ? random.pick(["S", "L", "g", "7", "?"]) : undefined;
    parts.push(encodeHeader(entry, type), padded(new Uint8Array(entry.size)));
  }
  return Buffer.concat([...parts, Buffer.alloc(random.once(5) ? 0 : 1024)]);
}

async function* streamOf(bytes: Uint8Array, piece: number): AsyncGenerator<Uint8Array> {
  for (let at = 0; at < bytes.length; at += piece) yield bytes.subarray(at, at + piece);
}

/** The paths of an archive, which must be whole, and stay below the root. */
async function pathsOf(archive: AsyncIterable<Uint8Array>): Promise<string[]> {
  const paths: string[] = [];
  for await (const { entry, body } of readTar(new StreamSource(archive))) {
    let bytes = 0;
    for await (const part of body()) bytes += part.length;
    if (bytes !== entry.size) throw new Error(`${entry.path} has ${bytes} bytes`);
    if (entry.kind === "hardlink" && !paths.includes(entry.target))
      throw new Error(`A link before its file: ${entry.path}`);
    paths.push(entry.path.replace(/\/$/, ""));
  }
  return paths;
}

const allowed = ["IMAGE_UNREADABLE", "LIMIT_REACHED"] as const;

test("layers of any bytes are merged or refused, and paths stay in the image", async (t) => {
  t.timeout(3_600_000);
  const seed = runSeed();
  t.log(`PODNET_SEED=${seed}`);
  const random = new Random(seed);
  let [whole, refused] = [0, 0];
  for (let round = 0; round < rounds; round += 1) {
    const layers = random.list(1 + random.below(3), () => layerOf(random));
    const fed = layers.map((bytes) =>
      random.once(3) ? mutate(bytes, random.pick(layers), random, target) : bytes,
    );
    const piece = 1 + random.below(3000);
    try {
      const limits = { entries: 100, bytes: 2 ** 20 };
      const merged = await mergeLayers(
        fed.map((bytes) => () => streamOf(bytes, piece)),
        limits,
      );
      const paths = await pathsOf(merged.archive);
      if (new Set(paths).size !== paths.length) throw new Error("A path comes twice");
      if (paths.length !== merged.paths) throw new Error("Paths are missing");
      for (const path of paths)
        if (path.startsWith("/") || /(?:^|\/)\.\.?(?:\/|$)/.test(path) || path === "")
          throw new Error(`A path that leads out: ${path}`);
      whole += 1;
    } catch (thrown) {
      if (!isPodnetError(thrown, ...allowed)) throw thrown;
      refused += 1;
    }
  }
  t.log(`${whole} merged, ${refused} refused`);
  t.true(whole > rounds / 50 && refused > rounds / 50);
});

const digest = `sha256:${"0".repeat(64)}`;
const documents = [
  { manifests: [{ digest, mediaType: "application/vnd.oci.image.index.v1+json" }] },
  { manifests: [{ digest, annotations: { "org.opencontainers.image.ref.name": "a" } }] },
  [{ Config: "c", RepoTags: ["a"], Layers: ["l"] }],
  { architecture: "amd64", os: "linux", config: { Cmd: ["a"] }, rootfs: { diff_ids: [digest] } },
  { config: { digest }, layers: [{ digest }] },
];

test("manifests and configurations of any bytes are read or refused", async (t) => {
  const seed = runSeed();
  t.log(`PODNET_SEED=${seed}`);
  const random = new Random(seed);
  const choice: Choice = { name: undefined, architecture: "amd64" };
  const texts = documents.map((each) => Buffer.from(JSON.stringify(each)));
  let refused = 0;
  for (let round = 0; round < rounds; round += 1) {
    const files = new Map<string, Uint8Array>();
    for (const name of ["manifest.json", "index.json", "c", `blobs/${digest.replace(":", "/")}`]) {
      if (random.once(4)) continue;
      const text = random.pick(texts);
      files.set(name, random.once(2) ? text : mutate(text, random.pick(texts), random, target));
    }
    const stored = {
      open: async (name: string) => {
        const bytes = files.get(name);
        return bytes && { bytes: bytes.length, read: () => streamOf(bytes, 4096) };
      },
      [Symbol.asyncDispose]: async () => {},
    };
    try {
      await readImage(stored, choice);
    } catch (thrown) {
      if (!isPodnetError(thrown, "IMAGE_UNREADABLE", "INVALID_ARGUMENT", "UNSUPPORTED"))
        throw thrown;
      refused += 1;
    }
  }
  t.true(refused > 0);
});
