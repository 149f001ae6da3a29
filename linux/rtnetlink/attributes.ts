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
 * The attributes behind a header or inside another attribute. Types the caller does not know are kept. Values are cut out
 * only when asked for: a link has some fifty attributes, and the guest's engine is slow.
 */
export class Attributes {
  readonly #bytes: Uint8Array;
  /** Where the header of each type's last attribute is: the kernel itself takes the last. */
  readonly #last = new Map<number, number>();

  /** Throws `NETLINK_FAILED` when a length is below a header's or beyond the end. */
  constructor(bytes: Uint8Array) {
    this.#bytes = bytes;
    const last = this.#last;
    // Fewer than four bytes at the end are padding and passed over, as the kernel does.
    const end = bytes.length - headerSize;
    for (let at = 0, size = 0; at <= end; at += (size + 3) & ~3) {
      size = (bytes[at] as number) | ((bytes[at + 1] as number) << 8);
      const type = ((bytes[at + 2] as number) | ((bytes[at + 3] as number) << 8)) & typeMask;
      if (size < headerSize || at + size > bytes.length)
        throw malformed(`attribute ${type} of ${size} bytes, where ${bytes.length - at} are left`);
      last.set(type, at);
    }
  }

  /** All of them, in order. */
  get list(): readonly Attribute[] {
    const list: Attribute[] = [];
    for (let at = 0; at + headerSize <= this.#bytes.length; at += (this.#size(at) + 3) & ~3)
      list.push({ type: this.#type(at), value: this.#value(at) });
    return list;
  }

  /** The last attribute of a type. */
  get(type: number): Uint8Array | undefined {
    const at = this.#last.get(type);
    return at === undefined ? undefined : this.#value(at);
  }

  /** Every attribute of a type: alternative names come as a list. */
  all(type: number): readonly Uint8Array[] {
    if (!this.#last.has(type)) return [];
    return this.list.filter((attribute) => attribute.type === type).map(({ value }) => value);
  }

  #size(at: number): number {
    return (this.#bytes[at] as number) | ((this.#bytes[at + 1] as number) << 8);
  }

  #type(at: number): number {
    return this.#size(at + 2) & typeMask;
  }

  #value(at: number): Uint8Array {
    return this.#bytes.subarray(at + headerSize, at + this.#size(at));
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

  /** An Ethernet address; undefined for a link whose addresses are of another length (a tunnel's, none). */
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
    const at = this.#last.get(type);
    if (at === undefined) return undefined;
    const bytes = this.#bytes;
    if (this.#size(at) < headerSize + width)
      throw malformed(`attribute ${type} has ${this.#size(at) - headerSize} bytes, too few`);
    let value = 0;
    for (let i = width - 1; i >= 0; i--)
      value = (value << 8) | (bytes[at + headerSize + i] as number);
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
