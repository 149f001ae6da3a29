import { PodnetError } from "../../core/errors.ts";

/**
 * The one error the codec's parsers throw: bytes that are no netlink message of the kind expected.
 */
export function malformed(what: string): PodnetError {
  return new PodnetError("NETLINK_FAILED", `Malformed netlink message: ${what}`, {
    details: { errno: "EBADMSG" },
  });
}

// Netlink is in the machine's own byte order; podnet runs on little-endian machines only.

/** Integers at fixed places of a header, with the bounds checked. */
export class Reader {
  readonly bytes: Uint8Array;
  readonly #view: DataView;
  readonly #what: string;

  constructor(bytes: Uint8Array, what: string) {
    this.bytes = bytes;
    this.#view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    this.#what = what;
  }

  u8(offset: number): number {
    return this.#view.getUint8(this.#checked(offset, 1));
  }

  u16(offset: number): number {
    return this.#view.getUint16(this.#checked(offset, 2), true);
  }

  u32(offset: number): number {
    return this.#view.getUint32(this.#checked(offset, 4), true);
  }

  i32(offset: number): number {
    return this.#view.getInt32(this.#checked(offset, 4), true);
  }

  /** Everything from `offset` on: the attributes behind a header. */
  rest(offset: number): Uint8Array {
    return this.bytes.subarray(this.#checked(offset, 0));
  }

  #checked(offset: number, size: number): number {
    if (offset + size > this.bytes.length)
      throw malformed(`${this.#what} has ${this.bytes.length} bytes, too few`);
    return offset;
  }
}
