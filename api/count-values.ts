import { type DescField, type DescMessage, ScalarType } from "@bufbuild/protobuf";

/**
 * What the bytes of a field hold: the fields of a message, a number for each byte at most, or one
 * text.
 */
type Inside = () => Fields | "numbers" | "text";
type Fields = ReadonlyMap<number, Inside>;

const known = new WeakMap<DescMessage, Fields>();

function fieldsOf(desc: DescMessage): Fields {
  let fields = known.get(desc);
  if (fields === undefined) {
    fields = new Map(desc.fields.map((field) => [field.number, insideOf(field)]));
    known.set(desc, fields);
  }
  return fields;
}

function insideOf(field: DescField): Inside {
  switch (field.fieldKind) {
    case "message":
      return () => fieldsOf(field.message);
    case "map": {
      // An entry is a message whose field 2 is the value.
      const value = field.mapKind === "message" ? field.message : undefined;
      const entry: Fields = new Map(value && [[2, () => fieldsOf(value)]]);
      return () => entry;
    }
    case "list": {
      if (field.listKind === "message") return () => fieldsOf(field.message);
      const texts = [ScalarType.STRING, ScalarType.BYTES];
      return field.listKind === "scalar" && texts.includes(field.scalar)
        ? () => "text"
        : () => "numbers";
    }
    default:
      return () => "text";
  }
}

/**
 * Counts the fields of a message in protobuf's wire format and of the messages in it, without
 * building any of them. Stops when there are more than `most`. What is no message is counted as far
 * as it goes.
 */
export function countBinary(desc: DescMessage, bytes: Uint8Array, most: number): number {
  let count = 0;
  let at = 0;
  const varint = (): number => {
    let value = 0;
    for (let unit = 1; ; unit *= 128) {
      const byte = bytes[at++] ?? 0;
      value += (byte & 0x7f) * unit;
      if (byte < 0x80) return value;
    }
  };
  const walk = (fields: Fields, end: number): void => {
    while (at < end && count <= most) {
      const tag = varint();
      const wireType = tag % 8;
      count++;
      if (wireType === 0) varint();
      else if (wireType === 1) at += 8;
      else if (wireType === 5) at += 4;
      else if (wireType === 2) {
        const length = varint();
        const stop = Math.min(end, at + length);
        const inside = fields.get(Math.floor(tag / 8))?.() ?? "text";
        if (inside === "numbers") count += stop - at;
        else if (inside !== "text") walk(inside, stop);
        at = stop;
      }
    }
  };
  walk(fieldsOf(desc), bytes.length);
  return count;
}

const [quote, backslash, comma, brace, bracket] = Buffer.from('"\\,{[');

/**
 * Counts the members and elements of JSON text, without parsing it. Stops when there are more than
 * `most`.
 */
export function countJson(text: Uint8Array, most: number): number {
  let count = 0;
  let quoted = false;
  for (let at = 0; at < text.length && count <= most; at++) {
    const byte = text[at];
    if (byte === quote) quoted = !quoted;
    else if (!quoted) count += byte === comma || byte === brace || byte === bracket ? 1 : 0;
    else if (byte === backslash) at++;
  }
  return count;
}
