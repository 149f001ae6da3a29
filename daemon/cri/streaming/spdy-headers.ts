import { setImmediate as turn } from "node:timers/promises";
import { createInflate, deflateSync } from "node:zlib";
import { guarded } from "../../../core/guard.ts";
import { SpdyError } from "./spdy-frames.ts";
import { spdyDictionary } from "./spdy-dictionary.ts";

/** Longest headers of a stream, bytes. */
const limit = 16 * 1024;

/**
 * Reads the headers of a connection's streams: one compressed text from its first stream to its
 * last.
 */
export class HeaderReader implements Disposable {
  readonly #inflate = createInflate({ dictionary: spdyDictionary });
  #parts: Buffer[] = [];
  #length = 0;

  constructor() {
    // Of a text that is damaged: who waits for it has one of his own, which a write has not.
    this.#inflate.on("error", () => {});
    this.#inflate.on(
      "data",
      guarded("api", (part: Buffer) => {
        this.#length += part.length;
        if (this.#length > limit) this.#inflate.destroy(new SpdyError("The headers are too long"));
        else this.#parts.push(part);
      }),
    );
  }

  /** The names are lower case. Throws `SpdyError`. One call after the other. */
  async read(block: Buffer): Promise<ReadonlyMap<string, string>> {
    this.#parts = [];
    this.#length = 0;
    try {
      await this.#write(block);
      // What was read last comes a turn later.
      await turn();
    } catch (cause) {
      throw cause instanceof SpdyError
        ? cause
        : new SpdyError("The headers are damaged", { cause });
    }
    if (this.#inflate.destroyed) throw new SpdyError("The headers are too long");
    return parseHeaders(Buffer.concat(this.#parts));
  }

  #write(block: Buffer): Promise<void> {
    return new Promise<void>((resolve, reject) => {
      this.#inflate.once("error", reject);
      this.#inflate.write(block, (error) => {
        this.#inflate.off("error", reject);
        if (error) reject(error);
        else resolve();
      });
    });
  }

  [Symbol.dispose](): void {
    this.#inflate.destroy();
  }
}

/** Pairs of counted texts behind their number. Throws `SpdyError`. Pure. */
function parseHeaders(bytes: Buffer): ReadonlyMap<string, string> {
  let at = 0;
  const number = (): number => {
    if (at + 4 > bytes.length) throw new SpdyError("The headers are cut off");
    at += 4;
    return bytes.readUInt32BE(at - 4);
  };
  const text = (): string => {
    const length = number();
    if (at + length > bytes.length) throw new SpdyError("The headers are cut off");
    at += length;
    return bytes.toString("utf8", at - length, at);
  };
  const headers = new Map<string, string>();
  for (let left = number(); left > 0; left--) headers.set(text().toLowerCase(), text());
  return headers;
}

/** The beginning of a compressed text that uses the dictionary. */
const textHead = deflateSync(Buffer.alloc(0), { dictionary: spdyDictionary }).subarray(0, 6);

/** No headers, which is all that a reply says, as a block of a text that is not compressed. */
export function emptyHeaders(isFirst: boolean): Buffer {
  const none = Buffer.alloc(4);
  const stored = Buffer.from([0, none.length, 0, ~none.length & 0xff, 0xff]);
  // Readers wait for the block behind, as a compressor's flush ends with an empty one.
  const flush = Buffer.from([0, 0, 0, 0xff, 0xff]);
  return Buffer.concat([...(isFirst ? [textHead] : []), stored, none, flush]);
}
