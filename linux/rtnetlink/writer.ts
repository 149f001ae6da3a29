import { encodeUtf8 } from "../../core/utf8.ts";

// include/uapi/linux/netlink.h (Linux 6.1)
const NLA_F_NESTED = 0x8000;
const attributeHeader = 4;
const maxAttribute = 0xffff;

/** Writes a header and the attributes behind it, growing as needed. */
export class Writer {
  #bytes = new Uint8Array(128);
  #view = new DataView(this.#bytes.buffer);
  #length = 0;

  u8(value: number): this {
    const at = this.#grow(1);
    this.#view.setUint8(at, value);
    return this;
  }

  u16(value: number): this {
    const at = this.#grow(2);
    this.#view.setUint16(at, value, true);
    return this;
  }

  u32(value: number): this {
    const at = this.#grow(4);
    this.#view.setUint32(at, value, true);
    return this;
  }

  i32(value: number): this {
    const at = this.#grow(4);
    this.#view.setInt32(at, value, true);
    return this;
  }

  raw(bytes: Uint8Array): this {
    const at = this.#grow(bytes.length);
    this.#bytes.set(bytes, at);
    return this;
  }

  /** An attribute of any bytes, padded to four. */
  attribute(type: number, value: Uint8Array): this {
    const size = attributeHeader + value.length;
    if (size > maxAttribute)
      throw new RangeError(`Attribute ${type} has ${value.length} bytes, too many`);
    return this.u16(size).u16(type).raw(value).#pad();
  }

  attributeU8(type: number, value: number): this {
    return this.attribute(type, Uint8Array.of(value));
  }

  attributeU16(type: number, value: number): this {
    return this.u16(attributeHeader + 2)
      .u16(type)
      .u16(value)
      .#pad();
  }

  /** In network order, as ports are. */
  attributeU16be(type: number, value: number): this {
    return this.attribute(type, Uint8Array.of(value >> 8, value & 0xff));
  }

  /** In network order, as numbers of netfilter are. */
  attributeU32be(type: number, value: number): this {
    const bytes = new Uint8Array(4);
    new DataView(bytes.buffer).setInt32(0, value);
    return this.attribute(type, bytes);
  }

  attributeU32(type: number, value: number): this {
    return this.u16(attributeHeader + 4)
      .u16(type)
      .u32(value);
  }

  /** A C string with its NUL (NLA_NUL_STRING). */
  attributeText(type: number, value: string): this {
    const text = encodeUtf8(value);
    const bytes = new Uint8Array(text.length + 1);
    bytes.set(text);
    return this.attribute(type, bytes);
  }

  attributeFlag(type: number, value: boolean | undefined): this {
    return value === undefined ? this : this.attributeU8(type, value ? 1 : 0);
  }

  /** An attribute that holds what `body` writes. */
  nested(type: number, body: (writer: this) => void): this {
    const start = this.#grow(attributeHeader);
    body(this);
    const size = this.#length - start;
    if (size > maxAttribute) throw new RangeError(`Attribute ${type} has ${size} bytes, too many`);
    this.#view.setUint16(start, size, true);
    this.#view.setUint16(start + 2, type | NLA_F_NESTED, true);
    return this;
  }

  /** The bytes written so far. */
  finish(): Uint8Array {
    return this.#bytes.slice(0, this.#length);
  }

  #pad(): this {
    this.#grow((4 - (this.#length & 3)) & 3);
    return this;
  }

  /**
   * Makes room and says where. Call it first: the array and its view may be new ones afterwards.
   */
  #grow(size: number): number {
    const start = this.#length;
    const end = start + size;
    if (end > this.#bytes.length) {
      const larger = new Uint8Array(Math.max(end, this.#bytes.length * 2));
      larger.set(this.#bytes);
      this.#bytes = larger;
      this.#view = new DataView(larger.buffer);
    }
    this.#length = end;
    return start;
  }
}
