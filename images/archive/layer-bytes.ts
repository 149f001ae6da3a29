import { Readable } from "node:stream";
import * as zlib from "node:zlib";
import { PodnetError } from "../../core/errors.ts";
import { bounded } from "../layers/bounds.ts";
import { quoted, unreadable } from "../unreadable.ts";
import { type Digest, hashLike } from "./digest.ts";
import type { StoredLayer } from "./image.ts";
import type { StoredFiles } from "./stored-files.ts";

const gzipMagic = Buffer.from([0x1f, 0x8b]);
const zstdMagic = Buffer.from([0x28, 0xb5, 0x2f, 0xfd]);

/**
 * The uncompressed bytes of a layer. They end with `IMAGE_UNREADABLE` when stored or uncompressed
 * bytes do not have their digest, so what was made of them is to be used only after their end.
 */
export async function* layerBytes(
  stored: StoredFiles,
  { file, digest, diffId }: StoredLayer,
  count: (storedBytes: number) => void = () => {},
): AsyncGenerator<Uint8Array> {
  const found = await stored.open(file);
  if (found === undefined) throw unreadable(`The image's layer ${quoted(file)} is missing`);
  const bytes = counted(found.read(), count);
  const verified = digest === undefined ? bytes : verifiedBytes(bytes, digest, file);
  yield* verifiedBytes(uncompressed(verified, file), diffId, file);
}

async function* counted(
  bytes: AsyncIterable<Uint8Array>,
  count: (bytes: number) => void,
): AsyncGenerator<Uint8Array> {
  for await (const part of bytes) {
    count(part.length);
    yield part;
  }
}

async function* verifiedBytes(
  bytes: AsyncIterable<Uint8Array>,
  digest: Digest,
  file: string,
): AsyncGenerator<Uint8Array> {
  const hash = hashLike(digest);
  for await (const part of bytes) {
    hash.update(part);
    yield part;
  }
  if (digest.endsWith(`:${hash.digest("hex")}`)) return;
  throw unreadable(`The image's layer ${quoted(file)} is damaged: its digest is another`);
}

/** Uncompresses at most so many bytes of what may be compressed. Throws `LIMIT_REACHED`. */
export const uncompressedBytes = (
  bytes: AsyncIterable<Uint8Array>,
  file: string,
  most: number,
): AsyncGenerator<Uint8Array> => bounded(uncompressed(bytes, file), most);

/** Uncompresses what is gzip or zstd by its first bytes. Media types are often wrong. */
async function* uncompressed(
  bytes: AsyncIterable<Uint8Array>,
  file: string,
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
    throw unreadable(`The image's layer ${quoted(file)} is damaged: it cannot be uncompressed`);
  } finally {
    source.destroy();
    decompressor.destroy();
  }
}

const chunk = { chunkSize: 2 ** 18 };

function decompressorOf(begin: Uint8Array): zlib.Gunzip | undefined {
  const begins = (magic: Uint8Array): boolean =>
    Buffer.compare(begin.subarray(0, magic.length), magic) === 0;
  if (begins(gzipMagic)) return zlib.createGunzip(chunk);
  if (!begins(zstdMagic)) return undefined;
  // Node 20 has no zstd.
  if ("createZstdDecompress" in zlib) return zlib.createZstdDecompress(chunk);
  throw new PodnetError("UNSUPPORTED", "This Node cannot read layers that zstd has compressed", {
    hint: "Use Node 22.15 or later, or save the image with gzip",
  });
}
