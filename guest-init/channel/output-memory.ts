/** Bytes of output that one piece holds: a message to a reader costs it more than their copy. */
export const pieceBytes = 128 * 1024;
/** Room in front of a piece, for the head of a message around it. */
export const roomInFront = 16;
/** Pieces kept for the next output, of all programs together: 1 MiB. */
const mostKept = 8;

const kept: Uint8Array<ArrayBuffer>[] = [];
const pieces = new WeakMap<Uint8Array, OutputPiece>();

/**
 * Memory for output on its way to its reader, which is used again. Each read and each message in
 * memory of its own would be garbage: V8 looks through all of its heap after every few MiB of it,
 * which was half of podnetd's time while a program wrote much.
 */
export class OutputPiece {
  #memory: Uint8Array<ArrayBuffer> | undefined;
  #length = 0;

  constructor() {
    this.#memory = kept.pop() ?? new Uint8Array(roomInFront + pieceBytes);
  }

  get length(): number {
    return this.#length;
  }

  /** Adds a copy, if it fits. */
  add(bytes: Uint8Array): boolean {
    if (this.#memory === undefined || this.#length + bytes.length > pieceBytes) return false;
    this.#memory.set(bytes, roomInFront + this.#length);
    this.#length += bytes.length;
    return true;
  }

  /** What was added. `OutputPiece.of` finds the piece again. */
  get data(): Uint8Array<ArrayBuffer> {
    const data = this.#from(0);
    pieces.set(data, this);
    return data;
  }

  /** The piece whose `data` this very array is. */
  static of(data: Uint8Array): OutputPiece | undefined {
    return pieces.get(data);
  }

  /** What was added, behind `head`, of at most `roomInFront` bytes. */
  behind(head: Uint8Array): Uint8Array<ArrayBuffer> {
    const bytes = this.#from(head.length);
    bytes.set(head);
    return bytes;
  }

  /** It is read, and nothing of it is looked at any more: its memory may become another piece's. */
  free(): void {
    if (this.#memory !== undefined && kept.length < mostKept) kept.push(this.#memory);
    this.#memory = undefined;
  }

  #from(front: number): Uint8Array<ArrayBuffer> {
    if (this.#memory === undefined) throw new Error("The piece is used already");
    return this.#memory.subarray(roomInFront - front, roomInFront + this.#length);
  }
}
