import { addressOf } from "./ffi/libc.ts";

/**
 * Bytes that never move, and where they are: for system calls that are notified of places, many a
 * call.
 */
export class NativeMemory {
  readonly bytes: Uint8Array<ArrayBuffer>;
  /** The memory as words of four bytes, in the machine's order. */
  readonly words: Uint32Array<ArrayBuffer>;
  readonly view: DataView<ArrayBuffer>;
  readonly address: number;

  /** `size` is a multiple of four. */
  constructor(size: number) {
    // (A short typed array would live in the collected heap, and move.)
    const buffer = new ArrayBuffer(Math.max(size, 128));
    this.bytes = new Uint8Array(buffer);
    this.words = new Uint32Array(buffer);
    this.view = new DataView(buffer);
    this.address = Number(addressOf(this.bytes));
  }

  /** Writes a pointer, at a multiple of four. */
  setPointer(at: number, address: number): void {
    this.words[at >> 2] = address;
    this.words[(at >> 2) + 1] = address / 0x1_0000_0000;
  }
}

/** An array of `struct iovec { void *base; size_t length; }`, filled from the front. */
export class Vectors {
  readonly memory: NativeMemory;
  readonly capacity: number;
  count = 0;

  constructor(capacity: number) {
    this.capacity = capacity;
    this.memory = new NativeMemory(capacity * 16);
  }

  add(address: number, length: number): void {
    const { memory } = this;
    const at = this.count++ * 16;
    memory.setPointer(at, address);
    memory.words[(at >> 2) + 2] = length;
  }

  lengthOf(index: number): number {
    return this.memory.words[index * 4 + 2] as number;
  }

  addressOf(index: number): number {
    return this.memory.address + index * 16;
  }
}
