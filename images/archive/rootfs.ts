import { hashLike, type Digest, parseDigest } from "./digest.ts";
import type { StoredImage } from "./image.ts";
import { uncompressedBytes } from "./layer-bytes.ts";
import { rangeOf, type StoredFiles } from "./stored-files.ts";
import type { ReadableFile } from "../tar/byte-source.ts";

const only = "rootfs.tar";
const sha256 = parseDigest(`sha256:${"0".repeat(64)}`);

/**
 * A tar archive of a root directory as an image of one layer: compressed or not, without names, and
 * without anything that it runs. Its digest is that of the uncompressed archive. Throws
 * `IMAGE_UNREADABLE`, `LIMIT_REACHED`.
 */
export async function rootfsImage(
  file: ReadableFile,
  bytes: number,
  architecture: string,
  mostBytes: number,
): Promise<{ readonly stored: StoredFiles; readonly image: StoredImage }> {
  const read = () => rangeOf(file, 0, bytes);
  const hash = hashLike(sha256);
  for await (const part of uncompressedBytes(read(), only, mostBytes)) hash.update(part);
  const digest = `sha256:${hash.digest("hex")}` as Digest;
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
