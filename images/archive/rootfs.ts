import path from "node:path";
import { hashLike, type Digest, parseDigest } from "./digest.ts";
import type { StoredImage } from "./image.ts";
import { type Compression, uncompressedBytes } from "./compression.ts";
import { noImage } from "./recognize.ts";
import { compressedImage, type StoredFiles } from "./stored-files.ts";
import { rangeOf, type ReadableFile, StreamSource } from "../tar/byte-source.ts";
import { readTar } from "../tar/read-tar.ts";

const only = "rootfs.tar";
const sha256 = parseDigest(`sha256:${"0".repeat(64)}`);

interface RootArchive {
  readonly architecture: string;
  readonly compression: Compression | undefined;
  /** Uncompressed. */
  readonly mostBytes: number;
}

/**
 * A tar archive of a root directory as an image of one layer: compressed or not, without names, and
 * without anything that it runs. Its digest is that of the uncompressed archive. Throws
 * `IMAGE_UNREADABLE`, `LIMIT_REACHED`.
 */
export async function rootfsImage(
  file: ReadableFile,
  bytes: number,
  { architecture, compression, mostBytes }: RootArchive,
): Promise<{ readonly stored: StoredFiles; readonly image: StoredImage }> {
  const read = () => rangeOf(file, 0, bytes);
  const digest = await digestOfRoot(uncompressedBytes(read(), undefined, mostBytes), compression);
  return {
    stored: {
      open: (name) => Promise.resolve(name === only ? { bytes, read } : undefined),
      [Symbol.asyncDispose]: async () => {},
    },
    image: {
      digest,
      names: [],
      config: {
        architecture,
        entrypoint: [],
        command: [],
        environment: [],
        directory: "",
        user: "",
        stopSignal: "",
        exposedPorts: [],
        labels: {},
      },
      layers: [{ file: only, digest: undefined, diffId: digest, bytes }],
    },
  };
}

/** Files that an archive of an image has, at its top. */
const filesOfImages = ["manifest.json", "oci-layout"];

/** Reads the archive to its end. Refuses one without entries, or of an image. */
async function digestOfRoot(
  archive: AsyncIterable<Uint8Array>,
  compression: Compression | undefined,
): Promise<Digest> {
  const hash = hashLike(sha256);
  const hashed = (async function* () {
    for await (const part of archive) {
      hash.update(part);
      yield part;
    }
  })();
  const source = new StreamSource(hashed);
  let entries = 0;
  for await (const { entry } of readTar(source)) {
    entries += 1;
    const isOfImage = filesOfImages.includes(path.posix.normalize(entry.path));
    // (Uncompressed, it was read as an image, or has too many files for one.)
    if (compression !== undefined && isOfImage) throw compressedImage(compression);
  }
  await source.drain();
  if (entries === 0) throw noImage("an archive without files", undefined);
  return `sha256:${hash.digest("hex")}` as Digest;
}
