import { access, rename, rm, stat } from "node:fs/promises";
import { availableParallelism } from "node:os";
import path from "node:path";
import { PodnetError } from "../core/errors.ts";
import { feed } from "../linux/processes/fed-command.ts";
import { type Choice, readImage, type StoredImage } from "./archive/image.ts";
import { layerBytes } from "./archive/layer-bytes.ts";
import { openStored, type StoredFiles } from "./archive/stored-files.ts";
import { type ImageLimits, type MergedLayers, mergeLayers } from "./layers/merge-layers.ts";
import type { TarEntry } from "./tar/entry.ts";
import { quoted } from "./unreadable.ts";

export interface Conversion extends Choice {
  /** An OCI layout, an archive of one, or of docker save. */
  readonly from: string;
  /** The squashfs to make. */
  readonly to: string;
  /** Replace the file if there is one. */
  readonly force: boolean;
  readonly limits: ImageLimits;
  readonly signal?: AbortSignal;
  /** Called as layers are read: their stored bytes so far, and in all. Each is read twice. */
  readonly progress?: (read: number, all: number) => void;
}

export interface Converted {
  readonly image: StoredImage;
  readonly paths: number;
  /** Bytes of its files, and of the squashfs. */
  readonly bytes: number;
  readonly squashfsBytes: number;
}

/**
 * Makes a squashfs of a container image: its layers one above the other. The file appears when it
 * is complete and all digests are right; a failure leaves nothing.
 *
 * Throws `IMAGE_MISSING`, `IMAGE_UNREADABLE`, `UNSUPPORTED`, `LIMIT_REACHED`, `INVALID_ARGUMENT`,
 * `COMMAND_FAILED`, `CANCELLED`.
 */
export async function convertImage(conversion: Conversion): Promise<Converted> {
  const { from, to, force } = conversion;
  if (!force) await refuseExisting(to);
  await using stored = await openStored(from);
  return await convertStored(stored, await readImage(stored, conversion), conversion);
}

/** As above, of an image that has been read. Replaces the file. */
export async function convertStored(
  stored: StoredFiles,
  image: StoredImage,
  conversion: Pick<Conversion, "to" | "limits" | "signal" | "progress">,
): Promise<Converted> {
  const { to, limits, signal, progress = () => {} } = conversion;
  const sizes = await Promise.all(image.layers.map(({ file }) => stored.open(file)));
  const all = 2 * sizes.reduce((sum, file) => sum + (file?.bytes ?? 0), 0);
  let read = 0;
  const layers = image.layers.map((layer) => () => {
    signal?.throwIfAborted();
    return layerBytes(stored, layer, (bytes) => {
      signal?.throwIfAborted();
      read += bytes;
      progress(read, all);
    });
  });
  const unfinished = `${to}.part-${process.pid}`;
  let merged: MergedLayers;
  try {
    merged = await mergeLayers(layers, limits);
    await feed(sqfstar(merged.root, unfinished), merged.archive, signal);
    await rename(unfinished, to);
  } catch (thrown) {
    await rm(unfinished, { force: true });
    if (signal?.aborted !== true) throw thrown;
    throw new PodnetError("CANCELLED", "The conversion was given up", { cause: thrown });
  }
  const { size } = await stat(to);
  return { image, paths: merged.paths, bytes: merged.bytes, squashfsBytes: size };
}

/** By itself it takes a quarter of the host's memory, and threads for each of its processors. */
const packingMib = 256;
const packingProcessors = 16;

/** It takes no root directory from an archive, only by options. */
const sqfstar = (root: TarEntry, file: string): readonly [string, ...string[]] => [
  "sqfstar",
  ...`-mem ${packingMib}M -processors ${Math.min(availableParallelism(), packingProcessors)}`.split(
    " ",
  ),
  ...`-comp lz4 -quiet -no-progress -root-mode ${root.mode.toString(8)}`.split(" "),
  ...`-root-uid ${root.uid} -root-gid ${root.gid} -root-time ${root.mtime}`.split(" "),
  // (A path that begins with a dash is no option. Where podnetd runs this, only the directory that
  // it runs in can be entered, so that the path stays relative.)
  path.isAbsolute(file) ? file : `./${file}`,
];

async function refuseExisting(file: string): Promise<void> {
  const isThere = await access(file).then(
    () => true,
    () => false,
  );
  if (isThere)
    throw new PodnetError("INVALID_ARGUMENT", `There is a file ${quoted(file)} already`, {
      field: "file",
      hint: "Name another file, or replace it with --force",
    });
}
