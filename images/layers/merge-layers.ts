import { StreamSource } from "../tar/byte-source.ts";
import { blockBytes, type Bytes, paddingOf, type TarEntry } from "../tar/entry.ts";
import { encodeHeader, paxOf } from "../tar/header.ts";
import { encodePax } from "../tar/pax.ts";
import { readTar } from "../tar/read-tar.ts";
import { unreadable } from "../unreadable.ts";
import { bounded, overhead, tooLarge } from "./bounds.ts";
import { FileTree, nodesBelow } from "./file-tree.ts";

/** A layer: the tar archive of what it changes, uncompressed. It is read twice. */
export type Layer = () => AsyncIterable<Uint8Array>;

export interface ImageLimits {
  /** Entries of all layers. */
  readonly entries: number;
  /** Bytes of all files of all layers, with their holes. */
  readonly bytes: number;
}

/** Characters that names, links and attributes of all entries may have: they are in memory. */
const mostText = 2 ** 28;
/** Counts what the layers have, and refuses what is beyond the limits. */
class Tally {
  readonly #limits: ImageLimits;
  entries = 0;
  bytes = 0;
  text = 0;

  constructor(limits: ImageLimits) {
    this.#limits = limits;
  }

  count({ size, path, target, xattrs }: TarEntry): void {
    this.entries += 1;
    this.bytes += size;
    this.text += path.length + target.length;
    for (const [name, value] of xattrs) this.text += name.length + value.length;
    const { entries, bytes } = this.#limits;
    if (this.entries > entries) throw tooLarge(`more than ${entries} files`);
    if (this.text > mostText) throw tooLarge("too many names and attributes");
    if (this.bytes > bytes) throw tooLarge(`more than ${Math.floor(bytes / 2 ** 20)} MiB of files`);
  }
}

/** What layers have become. */
export interface MergedLayers {
  /** The image's root directory, which is not in the archive. */
  readonly root: TarEntry;
  /** The files of the image as one tar archive, in pieces of some 64 KiB. */
  readonly archive: AsyncIterable<Uint8Array>;
  /** Paths in it, without its root. */
  readonly paths: number;
  /** Bytes of its files, each counted once. */
  readonly bytes: number;
}

/**
 * Puts layers one above the other, lowest first. The first reading finds which entries are seen in
 * the end; the second, while `archive` is read, passes their bytes on. What is in memory are the
 * headers. Throws `IMAGE_UNREADABLE` and `LIMIT_REACHED`; `archive` may throw as well.
 */
export async function mergeLayers(
  stored: readonly Layer[],
  limits: ImageLimits,
): Promise<MergedLayers> {
  const layers = stored.map((layer) => () => bounded(layer(), limits.bytes + overhead));
  const tree = new FileTree();
  const tally = new Tally(limits);
  for (const [number, layer] of layers.entries())
    for await (const { entry, index } of entriesOf(layer)) {
      tally.count(entry);
      tree.add(entry, number, index);
    }
  const files = filesByLayer(tree, layers.length);
  let [paths, bytes] = [0, 0];
  for (const _ of nodesBelow(tree.root)) paths += 1;
  for (const byIndex of files) for (const { entry } of byIndex.values()) bytes += entry.size;
  const archive = batched(archiveOf(tree, files, layers));
  return { root: tree.root.inode.entry, archive, paths, bytes };
}

async function* entriesOf(
  layer: Layer,
): AsyncGenerator<{ entry: TarEntry; index: number; body: () => AsyncIterable<Uint8Array> }> {
  const source = new StreamSource(layer());
  let index = 0;
  for await (const { entry, body } of readTar(source)) {
    yield { entry, index, body };
    index += 1;
  }
  // What follows the archive's end counts for its digest.
  await source.drain();
}

interface SeenFile {
  readonly entry: TarEntry;
  /** All paths of the file: more than one where it has hard links. */
  readonly paths: Bytes[];
}

/** The files that are seen in the end, by layer and by the number of their entry there. */
function filesByLayer(tree: FileTree, layers: number): ReadonlyMap<number, SeenFile>[] {
  const found = Array.from({ length: layers }, () => new Map<number, SeenFile>());
  for (const [path, { inode }] of nodesBelow(tree.root)) {
    if (inode.entry.kind !== "file") continue;
    const files = found[inode.layer];
    const file = files?.get(inode.index);
    if (file === undefined) files?.set(inode.index, { entry: inode.entry, paths: [path] });
    else file.paths.push(path);
  }
  return found;
}

/** Directories first: what is in them then finds them there. Files follow by layer. */
async function* archiveOf(
  tree: FileTree,
  files: readonly ReadonlyMap<number, SeenFile>[],
  layers: readonly Layer[],
): AsyncGenerator<Uint8Array> {
  for (const [path, { inode, children }] of nodesBelow(tree.root))
    if (children !== undefined) yield* headersOf({ ...inode.entry, path: `${path}/` });
  for (const [path, { inode, children }] of nodesBelow(tree.root))
    if (children === undefined && inode.entry.kind !== "file")
      yield* headersOf({ ...inode.entry, path });
  for (const [number, layer] of layers.entries()) yield* filesOf(layer, files[number]);
  yield new Uint8Array(2 * blockBytes);
}

async function* filesOf(
  layer: Layer,
  files: ReadonlyMap<number, SeenFile> | undefined,
): AsyncGenerator<Uint8Array> {
  if (files === undefined || files.size === 0) return;
  let missing = files.size;
  for await (const { entry, index, body } of entriesOf(layer)) {
    const file = files.get(index);
    if (file === undefined) continue;
    const [path = "", ...links] = file.paths;
    if (entry.kind !== "file" || entry.size !== file.entry.size) throw changed();
    missing -= 1;
    yield* headersOf({ ...file.entry, path });
    yield* body();
    yield new Uint8Array(paddingOf(entry.size));
    for (const link of links)
      yield* headersOf({ ...file.entry, kind: "hardlink", size: 0, path: link, target: path });
  }
  if (missing > 0) throw changed();
}

const changed = () => unreadable("The archive was changed while podnet read it", "Try again");

/** An entry's header, after a pax header where it has no room for all. */
function* headersOf(entry: TarEntry): Generator<Uint8Array> {
  // Attributes of a hard link are its file's.
  const pax = paxOf(entry.kind === "hardlink" ? { ...entry, xattrs: new Map() } : entry);
  if (pax.length > 0) {
    const body = encodePax(pax);
    const plain = { ...entry, path: "pax", target: "", uid: 0, gid: 0, major: 0, minor: 0 };
    yield encodeHeader({ ...plain, size: body.length }, "x");
    yield body;
    yield new Uint8Array(paddingOf(body.length));
  }
  yield encodeHeader(entry);
}

/** Small pieces put together: each is a call of the kernel's for the reader. */
async function* batched(pieces: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
  const most = 2 ** 16;
  let buffer = Buffer.allocUnsafe(most);
  let used = 0;
  for await (const piece of pieces) {
    if (used + piece.length > most && used > 0) {
      yield buffer.subarray(0, used);
      buffer = Buffer.allocUnsafe(most);
      used = 0;
    }
    if (piece.length > most / 2) {
      if (used > 0) {
        yield buffer.subarray(0, used);
        buffer = Buffer.allocUnsafe(most);
        used = 0;
      }
      yield piece;
    } else {
      buffer.set(piece, used);
      used += piece.length;
    }
  }
  if (used > 0) yield buffer.subarray(0, used);
}
