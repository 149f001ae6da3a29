import { quoted, unreadable } from "../unreadable.ts";
import { uncompressed } from "./compression.ts";
import { type Digest, hashLike } from "./digest.ts";
import type { StoredLayer } from "./image.ts";
import type { StoredFiles } from "./stored-files.ts";

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
