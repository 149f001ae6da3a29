import { type Ip, ipFromBytes, type Mac, macFromBytes } from "../../core/address.ts";
import { decodeUtf8 } from "../../core/utf8.ts";
import { malformed, Reader } from "./reader.ts";

// include/uapi/linux/netlink.h (Linux 6.1): the two upper bits of a type are flags.
const typeMask = 0x3fff;
const headerSize = 4;

export interface Attribute {
  readonly type: number;
  readonly value: Uint8Array;
}

/** The attributes behind a header or inside another attribute, in order. Types the caller does not know are kept. */
export class Attributes {
  readonly list: readonly Attribute[];
  // A link has some forty of them and is asked for twenty: one pass, since the guest's engine is slow.
  readonly #latest = new Map<number, Uint8Array>();

  constructor(list: readonly Attribute[]) {
    this.list = list;
    for (const { type, value } of list) this.#latest.set(type, value);
  }

  /** The last attribute of a type, as the kernel itself takes them. */
  get(type: number): Uint8Array | undefined {
    return this.#latest.get(type);
  }

  /** Every attribute of a type: alternative names come as a list. */
  all(type: number): readonly Uint8Array[] {
    return this.list.filter((attribute) => attribute.type === type).map(({ value }) => value);
  }

  u8(type: number): number | undefined {
    return this.#read(type, (reader) => reader.u8(0));
  }

  u16(type: number): number | undefined {
    return this.#read(type, (reader) => reader.u16(0));
  }

  u16be(type: number): number | undefined {
    return this.#read(type, (reader) => reader.u16be(0));
  }

  u32(type: number): number | undefined {
    return this.#read(type, (reader) => reader.u32(0));
  }

  i32(type: number): number | undefined {
    return this.#read(type, (reader) => reader.i32(0));
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

  #read(type: number, read: (reader: Reader) => number): number | undefined {
    const value = this.get(type);
    return value === undefined ? undefined : read(new Reader(value, "an attribute"));
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

/**
 * Parses attributes (struct nlattr). Fewer than four bytes at the end are padding and passed over, as the kernel does;
 * a length below a header's or beyond the end is an error.
 */
export function parseAttributes(bytes: Uint8Array): Attributes {
  const list: Attribute[] = [];
  const u16 = (at: number): number => (bytes[at] as number) | ((bytes[at + 1] as number) << 8);
  for (let offset = 0; offset + headerSize <= bytes.length; ) {
    const size = u16(offset);
    const type = u16(offset + 2) & typeMask;
    if (size < headerSize || offset + size > bytes.length)
      throw malformed(
        `attribute ${type} of ${size} bytes, where ${bytes.length - offset} are left`,
      );
    list.push({ type, value: bytes.subarray(offset + headerSize, offset + size) });
    offset += (size + 3) & ~3;
  }
  return new Attributes(list);
}
