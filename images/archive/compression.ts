import { Readable } from "node:stream";
import * as zlib from "node:zlib";
import { PodnetError } from "../../core/errors.ts";
import { bounded } from "../layers/bounds.ts";
import { quoted, unreadable } from "../unreadable.ts";

const gzipMagic = Buffer.from([0x1f, 0x8b]);
const zstdMagic = Buffer.from([0x28, 0xb5, 0x2f, 0xfd]);

/**
 * Uncompresses at most so many bytes of what may be compressed: of a layer, or of the file itself.
 * Throws `IMAGE_UNREADABLE`, `LIMIT_REACHED`.
 */
export const uncompressedBytes = (
  bytes: AsyncIterable<Uint8Array>,
  file: string | undefined,
  most: number,
): AsyncGenerator<Uint8Array> => bounded(uncompressed(bytes, file), most);

/** Uncompresses what is gzip or zstd by its first bytes. Media types are often wrong. */
export async function* uncompressed(
  bytes: AsyncIterable<Uint8Array>,
  file: string | undefined,
): AsyncGenerator<Uint8Array> {
  const parts = bytes[Symbol.asyncIterator]();
  let begin: Uint8Array = new Uint8Array(0);
  while (begin.length < zstdMagic.length) {
    const { done, value } = await parts.next();
    if (done === true) break;
    begin = begin.length === 0 ? value : Buffer.concat([begin, value]);
  }
  const whole = (async function* () {
    yield begin;
    yield* { [Symbol.asyncIterator]: () => parts };
  })();
  const decompressor = decompressorOf(begin);
  if (decompressor === undefined) {
    yield* whole;
    return;
  }
  const source = Readable.from(whole, { objectMode: false });
  source.on("error", (thrown) => decompressor.destroy(thrown));
  try {
    yield* source.pipe(decompressor) as AsyncIterable<Uint8Array>;
  } catch (thrown) {
    if (thrown instanceof PodnetError) throw thrown;
    const what = file === undefined ? "The file" : `The image's layer ${quoted(file)}`;
    throw unreadable(`${what} is damaged or cut short: it cannot be uncompressed`);
  } finally {
    source.destroy();
    decompressor.destroy();
  }
}

const chunk = { chunkSize: 2 ** 18 };

export type Compression = "gzip" | "zstd";

/** How bytes that begin so are compressed; undefined: in no way that podnet uncompresses. Pure. */
export function compressionOf(begin: Uint8Array): Compression | undefined {
  const begins = (magic: Uint8Array): boolean =>
    Buffer.compare(begin.subarray(0, magic.length), magic) === 0;
  if (begins(gzipMagic)) return "gzip";
  return begins(zstdMagic) ? "zstd" : undefined;
}

function decompressorOf(begin: Uint8Array): zlib.Gunzip | undefined {
  const compression = compressionOf(begin);
  if (compression === "gzip") return zlib.createGunzip(chunk);
  if (compression === undefined) return undefined;
  // Node 20 has no zstd.
  if ("createZstdDecompress" in zlib) return zlib.createZstdDecompress(chunk);
  throw new PodnetError("UNSUPPORTED", "This Node cannot read layers that zstd has compressed", {
    hint: "Use Node 22.15 or later, or save the image with gzip",
  });
}
