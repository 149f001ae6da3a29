import { Writer } from "../../../linux/rtnetlink/writer.ts";
import type { Random } from "../engine/random.ts";
import type { LengthField } from "../engine/target.ts";

/**
 * Attributes as a hostile or newer kernel might send them: any type, any length, nests in nests.
 */
function attributes(random: Random, writer: Writer, depth = 0): Writer {
  for (let i = random.below(8); i > 0; i--) {
    const type = random.below(random.once(10) ? 200 : 60);
    const value = [
      () => new Uint8Array(random.pick([0, 1, 2, 4, 6, 8, 16])).fill(random.below(256)),
      () => random.bytes(random.below(20)),
      () =>
        Buffer.from(
          random.pick(["bridge\0", "vxlan\0", "tun\0", "veth", "hyper0\0", "\u00fc", ""]),
        ),
      () => (depth > 3 ? new Uint8Array(4) : attributes(random, new Writer(), depth + 1).finish()),
    ];
    writer.attribute(type, random.pick(value)());
  }
  return writer;
}

/** A header of `size` bytes that begins with a family, and attributes behind it. */
export const payload =
  (size: number) =>
  (random: Random): Uint8Array => {
    const writer = new Writer().u8(random.pick([0, 2, 7, 10, 28, 128]));
    for (let i = 1; i < size; i++) writer.u8(random.once(2) ? 0 : random.below(256));
    return attributes(random, writer).finish();
  };

/** Lengths of attributes from `at` on, nested ones as well where they may be such. */
export function attributeLengths(bytes: Uint8Array, at: number, end = bytes.length): LengthField[] {
  const fields: LengthField[] = [];
  for (let place = at; place + 4 <= end && fields.length < 60; ) {
    const size = (bytes[place] as number) | ((bytes[place + 1] as number) << 8);
    fields.push({ at: place, bytes: 2, littleEndian: true });
    if (size >= 8)
      fields.push(...attributeLengths(bytes, place + 4, Math.min(end, place + size)).slice(0, 10));
    place += Math.max(4, (size + 3) & ~3);
  }
  return fields;
}

/** Where messages of a datagram begin, and the lengths in them. */
export function messageLengths(bytes: Uint8Array): LengthField[] {
  const fields: LengthField[] = [];
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  for (let at = 0; at + 16 <= bytes.length && fields.length < 60; ) {
    const size = view.getUint32(at, true);
    fields.push(
      { at, bytes: 4, littleEndian: true },
      ...attributeLengths(bytes, at + 32).slice(0, 8),
    );
    at += Math.max(16, Math.min((size + 3) & ~3, bytes.length));
  }
  return fields;
}

/**
 * What netlink(7) says of attributes, written once more: types and lengths, undefined for what must
 * be refused.
 */
export function attributeReference(bytes: Uint8Array): [number, number][] | undefined {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  const found: [number, number][] = [];
  for (let at = 0; at + 4 <= bytes.length; ) {
    const size = view.getUint16(at, true);
    if (size < 4 || size > bytes.length - at) return undefined;
    found.push([view.getUint16(at + 2, true) & 0x3fff, size - 4]);
    at += Math.ceil(size / 4) * 4;
  }
  return found;
}

/** For messages: the lengths of their payloads. */
export function messageReference(bytes: Uint8Array): number[] | undefined {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  const found: number[] = [];
  for (let at = 0; at < bytes.length; ) {
    if (bytes.length - at < 16) return undefined;
    const size = view.getUint32(at, true);
    if (size < 16 || size > bytes.length - at) return undefined;
    found.push(size - 16);
    at += Math.ceil(size / 4) * 4;
  }
  return found;
}
