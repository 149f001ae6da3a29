import { noBytes } from "./bytes.ts";

/** Why a header was not believed. */
export type RefusalReason = "too-short" | "too-long";

/**
 * One thing the assembler found: a whole frame, or a header that is refused. After `too-long` the
 * announced body is skipped without being kept; after `too-short` the next byte starts a new
 * header. An end that must not go on after a refusal (the host) closes its channel; the agent
 * answers ERROR.
 */
export type Assembled =
  | {
      readonly kind: "frame";
      /** Its header begins at `at` of these bytes. */
      readonly header: Uint8Array;
      readonly at: number;
      readonly body: Uint8Array;
    }
  | {
      readonly kind: "refused";
      readonly header: Uint8Array;
      readonly at: number;
      readonly length: number;
      readonly reason: RefusalReason;
    };

export interface FrameShape<Item> {
  readonly headerSize: number;
  /** Total length, header included, as the header at a place states it. */
  readonly lengthOf: (header: Uint8Array, at: number) => number;
  /** Largest total length accepted. */
  readonly limit: number;
  /**
   * Large bodies are parts of what was pushed, or of memory that is used again: valid until `done`
   * is called. Otherwise all are copies.
   */
  readonly shares?: boolean;
  /** The item for a thing that was found; its header is valid during the call alone. */
  readonly itemOf: (found: Assembled) => Item;
}

/** Bodies from this length on may be shared. */
const sharedFrom = 16 * 1024;
/** Memory of shared bodies that came in parts: its length, and how many are kept for the next. */
const spareBytes = 32 * 1024;
const mostSpare = 8;
const spare: Uint8Array[] = [];
/** Memory taken on a peer's word alone; beyond it the buffer grows with what really arrives. */
const firstReserve = 16 * 1024;

/**
 * Cuts a byte stream into frames. The length is checked before anything is reserved for it, and
 * what is reserved never exceeds twice what has arrived, or 16 KiB, and 32 where bodies are shared.
 */
export class FrameAssembler<Item> {
  readonly #shape: FrameShape<Item>;
  readonly #header: Uint8Array;
  #headerFill = 0;
  #body: Uint8Array = noBytes;
  #bodyFill = 0;
  #bodyLength = 0;
  #skip = 0;
  /** Memory of bodies that were found and may still be looked at. */
  #lent: Uint8Array[] = [];

  constructor(shape: FrameShape<Item>) {
    this.#shape = shape;
    this.#header = new Uint8Array(shape.headerSize);
  }

  /** Whether a frame has begun and is not complete. */
  get pending(): boolean {
    return this.#headerFill > 0 || this.#skip > 0;
  }

  /**
   * Bytes missing until the header, or the body, is complete: never 0. hyperstart reads exactly
   * that much at a time and acknowledges each read with NEXT.
   */
  get wanted(): number {
    if (this.#skip > 0) return this.#skip;
    if (this.#headerFill < this.#shape.headerSize) return this.#shape.headerSize - this.#headerFill;
    return this.#bodyLength - this.#bodyFill;
  }

  /** Bytes held for the frame under way. */
  get reserved(): number {
    return this.#header.length + this.#body.length;
  }

  /** Takes the next bytes of the stream; they are copied where kept, unless the shape shares. */
  push(bytes: Uint8Array): Item[] {
    return this.cut(bytes, Infinity).items;
  }

  /**
   * Takes as many of the next bytes as have at most `most` frames in them, and says how many it
   * took.
   */
  cut(bytes: Uint8Array, most: number): { readonly items: Item[]; readonly taken: number } {
    const items: Item[] = [];
    let at = 0;
    while (at < bytes.length && items.length < most) {
      const whole = this.#takeWhole(bytes, at, items);
      if (whole > 0) {
        at += whole;
        continue;
      }
      const step = Math.min(this.wanted, bytes.length - at);
      const part = bytes.subarray(at, at + step);
      at += step;
      if (this.#skip > 0) this.#skip -= step;
      else if (this.#headerFill < this.#shape.headerSize) this.#takeHeader(part, items);
      else this.#takeBody(part, items);
    }
    return { items, taken: at };
  }

  /**
   * Takes a frame that is there as a whole, as most are, without a copy of its header; answers its
   * length, or 0. In the agent each array that is not made counts.
   */
  #takeWhole(bytes: Uint8Array, at: number, items: Item[]): number {
    const { headerSize, lengthOf, limit, shares, itemOf } = this.#shape;
    const there = bytes.length - at;
    if (this.#headerFill > 0 || this.#skip > 0 || there < headerSize) return 0;
    const length = lengthOf(bytes, at);
    if (length < headerSize || length > limit || length > there) return 0;
    const from = at + headerSize;
    const to = at + length;
    let body: Uint8Array = noBytes;
    if (shares === true && to - from >= sharedFrom) body = bytes.subarray(from, to);
    else if (to > from) body = new Uint8Array(bytes.subarray(from, to));
    items.push(itemOf({ kind: "frame", header: bytes, at, body }));
    return length;
  }

  /** The bodies that were found are not looked at any more. */
  done(): void {
    for (const memory of this.#lent) if (spare.length < mostSpare) spare.push(memory);
    if (this.#lent.length > 0) this.#lent = [];
  }

  #takeHeader(part: Uint8Array, items: Item[]): void {
    this.#header.set(part, this.#headerFill);
    this.#headerFill += part.length;
    const { headerSize, lengthOf, limit, itemOf } = this.#shape;
    if (this.#headerFill < headerSize) return;
    const length = lengthOf(this.#header, 0);
    if (length < headerSize || length > limit) {
      const reason: RefusalReason = length < headerSize ? "too-short" : "too-long";
      items.push(itemOf({ kind: "refused", header: this.#header, at: 0, length, reason }));
      this.#headerFill = 0;
      this.#skip = Math.max(0, length - headerSize);
      return;
    }
    this.#bodyLength = length - headerSize;
    if (this.#bodyLength === 0) this.#finish(items);
  }

  #takeBody(part: Uint8Array, items: Item[]): void {
    const begins = this.#bodyFill === 0;
    if (begins && this.#shape.shares === true && this.#bodyLength >= sharedFrom) {
      if (part.length === this.#bodyLength) {
        this.#body = part;
        return this.#finish(items);
      }
      if (this.#bodyLength <= spareBytes) this.#body = spare.pop() ?? new Uint8Array(spareBytes);
    }
    const needed = this.#bodyFill + part.length;
    if (needed > this.#body.length) {
      // A frame that comes in one piece, as most do, gets its memory at once.
      const wanted = Math.max(needed, 2 * this.#bodyFill, firstReserve);
      const grown = new Uint8Array(Math.min(this.#bodyLength, wanted));
      grown.set(this.#body.subarray(0, this.#bodyFill));
      this.#body = grown;
    }
    this.#body.set(part, this.#bodyFill);
    this.#bodyFill = needed;
    if (needed !== this.#bodyLength) return;
    if (this.#body.length > needed) {
      this.#lent.push(this.#body);
      this.#body = this.#body.subarray(0, needed);
    }
    this.#finish(items);
  }

  #finish(items: Item[]): void {
    const { itemOf } = this.#shape;
    items.push(itemOf({ kind: "frame", header: this.#header, at: 0, body: this.#body }));
    this.#headerFill = 0;
    this.#bodyFill = 0;
    this.#bodyLength = 0;
    this.#body = noBytes;
  }
}
