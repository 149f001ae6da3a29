import { PodnetError } from "../../core/errors.ts";
import { notQmp } from "./message.ts";

const newline = 0x0a;

/**
 * Cuts a byte stream into lines. The limit is checked before a byte is kept, so that a peer
 * which never ends its line costs at most `limit` bytes.
 */
export class LineSplitter {
  readonly #limit: number;
  #parts: Uint8Array[] = [];
  #held = 0;

  /** `limit`: bytes a line may have, without its end. */
  constructor(limit: number) {
    this.#limit = limit;
  }

  /** True when a line has begun and not ended. */
  get midLine(): boolean {
    return this.#held > 0;
  }

  /**
   * Takes the next bytes; returns the lines they complete. Throws `QMP_PROTOCOL` above the limit.
   */
  push(chunk: Uint8Array): string[] {
    const lines: string[] = [];
    let start = 0;
    for (;;) {
      const end = chunk.indexOf(newline, start);
      const piece = chunk.subarray(start, end < 0 ? chunk.length : end);
      if (this.#held + piece.length > this.#limit) {
        throw new PodnetError("QMP_PROTOCOL", `QMP line is longer than ${this.#limit} bytes`, {
          hint: notQmp,
          details: { limit: this.#limit },
        });
      }
      if (piece.length > 0) {
        this.#parts.push(piece);
        this.#held += piece.length;
      }
      if (end < 0) return lines;
      lines.push(Buffer.concat(this.#parts, this.#held).toString("utf8").trim());
      this.#parts = [];
      this.#held = 0;
      start = end + 1;
    }
  }
}
