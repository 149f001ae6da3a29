/** A part of a program's output. */
export interface OutputPiece {
  /** Place of its first byte in all that the program wrote. */
  readonly at: number;
  readonly stderr: boolean;
  readonly data: Uint8Array;
}

/** Memory that a piece takes beyond its bytes, about. */
const pieceCost = 128;
/** Little output is joined up to this length: a program may write byte by byte. */
const joinedBytes = 4096;

/** The end of what a program has written to its two outputs, in order, in bounded memory. */
export class KeptOutput {
  readonly #limit: number;
  #pieces: OutputPiece[] = [];
  #cost = 0;
  #end = 0;

  /** `limit`: bytes of memory. */
  constructor(limit: number) {
    this.#limit = limit;
  }

  /** Bytes written so far, those no longer kept included. */
  get end(): number {
    return this.#end;
  }

  /** Place of the first byte that is kept. */
  get start(): number {
    return this.#pieces[0]?.at ?? this.#end;
  }

  /** Keeps these bytes, which are its own from now on; the earliest make room for them. */
  push(stderr: boolean, data: Uint8Array): void {
    const last = this.#pieces.at(-1);
    if (last?.stderr === stderr && last.data.length + data.length <= joinedBytes) {
      const joined = new Uint8Array(last.data.length + data.length);
      joined.set(last.data);
      joined.set(data, last.data.length);
      this.#pieces[this.#pieces.length - 1] = { ...last, data: joined };
    } else {
      this.#pieces.push({ at: this.#end, stderr, data });
      this.#cost += pieceCost;
    }
    this.#cost += data.length;
    this.#end += data.length;
    let gone = 0;
    for (const piece of this.#pieces) {
      if (this.#cost <= this.#limit) break;
      this.#cost -= pieceCost + piece.data.length;
      gone++;
    }
    if (gone > 0) this.#pieces.splice(0, gone);
  }

  /** What begins at this place, or after it where that is not kept; undefined at the end. */
  from(at: number): OutputPiece | undefined {
    // A reader is near the end most of the time.
    for (let i = this.#pieces.length - 1; i >= 0; i--) {
      const piece = this.#pieces[i] as OutputPiece;
      if (piece.at > at && i > 0) continue;
      const skip = Math.max(0, at - piece.at);
      if (skip >= piece.data.length) return undefined;
      return { at: piece.at + skip, stderr: piece.stderr, data: piece.data.subarray(skip) };
    }
    return undefined;
  }
}
