import { PodnetError } from "../../core/errors.ts";

/** Bytes of an archive that are no files': headers, and what fills up blocks. */
export const overhead = 2 ** 31;

export const tooLarge = (what: string): PodnetError =>
  new PodnetError("LIMIT_REACHED", `The image has ${what}`, {
    hint: "Raise the limit if you trust the image",
  });

/** Passes so many bytes of a layer. Compressed zeros would else keep podnet busy for days. */
export async function* bounded(
  bytes: AsyncIterable<Uint8Array>,
  most: number,
): AsyncGenerator<Uint8Array> {
  let passed = 0;
  for await (const part of bytes) {
    passed += part.length;
    if (passed > most) throw tooLarge(`a layer of more than ${Math.floor(most / 2 ** 20)} MiB`);
    yield part;
  }
}
