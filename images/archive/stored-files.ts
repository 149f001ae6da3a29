import { createReadStream } from "node:fs";
import { open, stat } from "node:fs/promises";
import path from "node:path";
import { PodnetError } from "../../core/errors.ts";
import { FileSource, rangeOf, type ReadableFile } from "../tar/byte-source.ts";
import { readTar } from "../tar/read-tar.ts";
import { quoted, unreadable } from "../unreadable.ts";
import type { Compression } from "./compression.ts";
import { checkArchive } from "./recognize.ts";

/** The files that an image is stored as: those of a directory, or of an archive of one. */
export interface StoredFiles extends AsyncDisposable {
  /** Undefined when there is none of this name. */
  readonly open: (name: string) => Promise<StoredFile | undefined>;
}

interface StoredFile {
  readonly bytes: number;
  readonly read: () => AsyncIterable<Uint8Array>;
}

/** Files that an archive of an image may have: one a layer and a few more. */
const mostFiles = 10_000;
const mostLinks = 8;

/** Opens a directory or a tar archive. Throws `IMAGE_MISSING` and `IMAGE_UNREADABLE`. */
export async function openStored(location: string): Promise<StoredFiles> {
  const found = await stat(location).catch((cause: unknown) => {
    throw new PodnetError("IMAGE_MISSING", `There is no image at ${quoted(location)}`, {
      hint: "Name an OCI layout, or an archive of podman save, docker save or skopeo",
      cause,
    });
  });
  if (found.isDirectory()) return directoryAt(location);
  const file = await open(location);
  try {
    const compression = await checkArchive(file, found.size);
    if (compression !== undefined) throw compressedImage(compression);
    return { ...(await openArchive(file, found.size)), [Symbol.asyncDispose]: () => file.close() };
  } catch (thrown) {
    await file.close();
    throw thrown;
  }
}

/** The refusal of an archive that is to be uncompressed first: its files are read at any place. */
export const compressedImage = (compression: Compression): PodnetError =>
  unreadable(
    `The archive of an image is compressed by ${compression}, as a whole`,
    `Uncompress it first: ${compression} -dc FILE | podnet image import -`,
  );

/** A directory. Names in it are those of the OCI layout, which have no `..`. */
function directoryAt(location: string): StoredFiles {
  return {
    open: async (name) => {
      const file = path.join(location, name);
      const found = await stat(file).catch(() => undefined);
      if (found?.isFile() !== true) return undefined;
      return { bytes: found.size, read: () => createReadStream(file, { highWaterMark: 2 ** 18 }) };
    },
    [Symbol.asyncDispose]: async () => {},
  };
}

type Place =
  | { readonly kind: "file"; readonly position: number; readonly bytes: number }
  | { readonly kind: "link"; readonly to: string };

/** The files of an archive that is open, and stays open. Throws `IMAGE_UNREADABLE`. */
export async function openArchive(file: ReadableFile, size: number): Promise<StoredFiles> {
  const places = await placesIn(file, size);
  return {
    open: async (name) => {
      const place = placeOf(places, name);
      if (place === undefined) return undefined;
      const { position, bytes } = place;
      return { bytes, read: () => rangeOf(file, position, bytes) };
    },
    [Symbol.asyncDispose]: async () => {},
  };
}

/** Where the files of an archive lie in it. */
async function placesIn(file: ReadableFile, size: number): Promise<ReadonlyMap<string, Place>> {
  const places = new Map<string, Place>();
  for await (const { entry, position } of readTar(new FileSource(file, 0, size))) {
    if (places.size >= mostFiles)
      throw unreadable(
        "The archive has too many files for one of an image",
        "Give an archive of podman save, docker save or skopeo, not one of a root directory",
      );
    const name = path.posix.normalize(entry.path);
    if (entry.kind === "file") places.set(name, { kind: "file", position, bytes: entry.size });
    if (entry.kind === "hardlink") places.set(name, { kind: "link", to: entry.target });
    // Old versions of docker save store a layer once, and link to it.
    if (entry.kind === "symlink") {
      const to = path.posix.join(path.posix.dirname(name), entry.target);
      places.set(name, { kind: "link", to });
    }
  }
  return places;
}

function placeOf(
  places: ReadonlyMap<string, Place>,
  name: string,
): (Place & { readonly kind: "file" }) | undefined {
  let place = places.get(path.posix.normalize(name));
  for (let links = 0; place?.kind === "link" && links < mostLinks; links += 1)
    place = places.get(path.posix.normalize(place.to));
  return place?.kind === "file" ? place : undefined;
}
