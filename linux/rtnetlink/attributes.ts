import { type Ip, ipFromBytes, type Mac, macFromBytes } from "../../core/address.ts";
import { decodeUtf8 } from "../../core/utf8.ts";
import { malformed } from "./reader.ts";

// include/uapi/linux/netlink.h (Linux 6.1): the two upper bits of a type are flags.
const typeMask = 0x3fff;
const headerSize = 4;

export interface Attribute {
  readonly type: number;
  readonly value: Uint8Array;
}

/**
 * Types below this one are found without a search: more than any message has that podnet reads
 * (Linux 6.1).
 */
const indexed = 64;

/**
 * Notes where the value of each type's last attribute is, as far as `last` reaches; false when a
 * length is below a header's or beyond the end. The agent brings its own
 * (guest-init/agent/native/engine.c).
 */
const {
  indexAttributes = (bytes: Uint8Array, last: Uint32Array): boolean => {
    const { length } = bytes;
    // Fewer than four bytes at the end are padding and passed over, as the kernel does.
    for (let at = 0, size = 0; at + headerSize <= length; at += (size + 3) & ~3) {
      size = sizeAt(bytes, at);
      if (size < headerSize || at + size > length) return false;
      // Beyond the array's end nothing is stored.
      last[typeAt(bytes, at)] = at + headerSize;
    }
    return true;
  },
} = globalThis as { indexAttributes?: (bytes: Uint8Array, last: Uint32Array) => boolean | number };

const sizeAt = (bytes: Uint8Array, at: number): number =>
  (bytes[at] as number) | ((bytes[at + 1] as number) << 8);
const typeAt = (bytes: Uint8Array, at: number): number => sizeAt(bytes, at + 2) & typeMask;

/** Throws for the first attribute whose length is wrong. */
function refuse(bytes: Uint8Array): never {
  let at = 0;
  let size = sizeAt(bytes, at);
  while (size >= headerSize && at + size <= bytes.length) {
    at += (size + 3) & ~3;
    size = sizeAt(bytes, at);
  }
  throw malformed(
    `attribute ${typeAt(bytes, at)} of ${size} bytes, where ${bytes.length - at} are left`,
  );
}

/**
 * The attributes behind a header or inside another attribute. Types the caller does not know are
 * kept. Values are cut out only when asked for: a link has some fifty attributes, and the guest's
 * engine is slow.
 */
export class Attributes {
  readonly #bytes: Uint8Array;
  /**
   * Where the value of each type's last attribute is, 0 for none: the kernel itself takes the last.
   */
  readonly #last = new Uint32Array(indexed);

  /** Throws `NETLINK_FAILED` when a length is below a header's or beyond the end. */
  constructor(bytes: Uint8Array) {
    this.#bytes = bytes;
    if (!indexAttributes(bytes, this.#last)) refuse(bytes);
  }

  /** All of them, in order. */
  get list(): readonly Attribute[] {
    const list: Attribute[] = [];
    for (
      let at = 0;
      at + headerSize <= this.#bytes.length;
      at += (sizeAt(this.#bytes, at) + 3) & ~3
    )
      list.push({ type: typeAt(this.#bytes, at), value: this.#value(at) });
    return list;
  }

  /** The last attribute of a type. */
  get(type: number): Uint8Array | undefined {
    const at = this.#find(type);
    return at === 0
      ? undefined
      : this.#bytes.subarray(at, at - headerSize + sizeAt(this.#bytes, at - headerSize));
  }

  /** Every attribute of a type: alternative names come as a list. */
  all(type: number): readonly Uint8Array[] {
    if (this.#find(type) === 0) return [];
    return this.list.filter((attribute) => attribute.type === type).map(({ value }) => value);
  }

  /** Where the value of the last attribute of a type is; 0 for none. */
  #find(type: number): number {
    if (type < indexed) return this.#last[type] as number;
    let found = 0;
    for (
      let at = 0;
      at + headerSize <= this.#bytes.length;
      at += (sizeAt(this.#bytes, at) + 3) & ~3
    )
      if (typeAt(this.#bytes, at) === type) found = at + headerSize;
    return found;
  }

  #value(at: number): Uint8Array {
    return this.#bytes.subarray(at + headerSize, at + sizeAt(this.#bytes, at));
  }

  u8(type: number): number | undefined {
    return this.#unsigned(type, 1);
  }

  u16(type: number): number | undefined {
    return this.#unsigned(type, 2);
  }

  u16be(type: number): number | undefined {
    const value = this.#unsigned(type, 2);
    return value === undefined ? undefined : ((value & 0xff) << 8) | (value >> 8);
  }

  u32(type: number): number | undefined {
    return this.#unsigned(type, 4);
  }

  u32be(type: number): number | undefined {
    const value = this.#unsigned(type, 4);
    return value === undefined
      ? undefined
      : (((value & 0xff) << 24) |
          ((value & 0xff00) << 8) |
          ((value >>> 8) & 0xff00) |
          (value >>> 24)) >>>
          0;
  }

  i32(type: number): number | undefined {
    const value = this.#unsigned(type, 4);
    return value === undefined ? undefined : value | 0;
  }

  bool(type: number): boolean | undefined {
    const value = this.u8(type);
    return value === undefined ? undefined : value !== 0;
  }

  text(type: number): string | undefined {
    const value = this.get(type);
    return value === undefined ? undefined : textOf(value);
  }

  ip(type: number): Ip | undefined {
    const value = this.get(type);
    return value === undefined ? undefined : ipOfBytes(value);
  }

  /** An Ethernet address; undefined for a link whose addresses have another length (a tunnel). */
  mac(type: number): Mac | undefined {
    const value = this.get(type);
    return value?.length === 6 ? macFromBytes(value) : undefined;
  }

  nested(type: number): Attributes | undefined {
    const value = this.get(type);
    return value === undefined ? undefined : parseAttributes(value);
  }

  /** Little-endian, the first `width` bytes of the value. */
  #unsigned(type: number, width: 1 | 2 | 4): number | undefined {
    const at = this.#find(type);
    if (at === 0) return undefined;
    const bytes = this.#bytes;
    const size = sizeAt(this.#bytes, at - headerSize) - headerSize;
    if (size < width) throw malformed(`attribute ${type} has ${size} bytes, too few`);
    let value = 0;
    for (let i = at + width - 1; i >= at; i--) value = (value << 8) | (bytes[i] as number);
    return value >>> 0;
  }
}

/** Text up to the first NUL, which some attributes have and others lack. */
export function textOf(value: Uint8Array): string {
  const end = value.indexOf(0);
  return decodeUtf8(end < 0 ? value : value.subarray(0, end));
}

function ipOfBytes(value: Uint8Array): Ip {
  if (value.length !== 4 && value.length !== 16)
    throw malformed(`an address of ${value.length} bytes`);
  return ipFromBytes(value);
}

/** Parses attributes (struct nlattr). Throws `NETLINK_FAILED`. */
export const parseAttributes = (bytes: Uint8Array): Attributes => new Attributes(bytes);
