/** A part of a process's output. */
export interface Piece {
  /** Position of its first byte in all output. */
  readonly at: number;
  readonly stderr: boolean;
  data: Uint8Array;
}

/** What a piece takes of memory beyond its bytes, about. */
const overhead = 64;
/** Pieces are joined up to this size, bytes. */
const joined = 4096;

/** The end of what a process has written to its two outputs, in order, within a bound. */
export class KeptOutput {
  readonly #limit: number;
  #pieces: Piece[] = [];
  #cost = 0;
  #end = 0;

  /** `limit`: bytes of memory. */
  constructor(limit: number) {
    this.#limit = limit;
  }

  /** Bytes written so far. */
  get end(): number {
    return this.#end;
  }

  /** The first byte that is kept. */
  get start(): number {
    return this.#pieces[0]?.at ?? this.#end;
  }

  /** Keeps what was written now; the earliest makes room for it. */
  push(stderr: boolean, data: Uint8Array): void {
    const last = this.#pieces.at(-1);
    if (last?.stderr === stderr && last.data.length + data.length <= joined) {
      const both = new Uint8Array(last.data.length + data.length);
      both.set(last.data);
      both.set(data, last.data.length);
      last.data = both;
    } else {
      this.#pieces.push({ at: this.#end, stderr, data });
      this.#cost += overhead;
    }
    this.#cost += data.length;
    this.#end += data.length;
    let gone = 0;
    for (const piece of this.#pieces) {
      if (this.#cost <= this.#limit || gone === this.#pieces.length - 1) break;
      this.#cost -= piece.data.length + overhead;
      gone++;
    }
    if (gone > 0) this.#pieces.splice(0, gone);
  }

  /** What begins at this byte, or after it where that is not kept; undefined at the end. */
  from(at: number): Piece | undefined {
    for (let i = this.#pieces.length - 1; i >= 0; i--) {
      const piece = this.#pieces[i] as Piece;
      if (piece.at > at && i > 0) continue;
      const skip = Math.max(0, at - piece.at);
      if (skip >= piece.data.length) return undefined;
      return { at: piece.at + skip, stderr: piece.stderr, data: piece.data.subarray(skip) };
    }
    return undefined;
  }
}
