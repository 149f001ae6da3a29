import { mutateJson } from "./mutate-json.ts";
import type { Random } from "./random.ts";
import type { LengthField, Target } from "./target.ts";

/** Where integers turn over. */
const edges = [
  0, 1, 2, 3, 4, 7, 8, 11, 12, 15, 16, 17, 127, 128, 255, 256, 4095, 4096, 65535, 65536, 0x7fffffff,
  0x80000000, 0xfffffffc, 0xfffffffd, 0xffffffff,
] as const;
const decimals = [
  "0",
  "1",
  "-1",
  "00",
  "01",
  "31",
  "32",
  "33",
  "64",
  "65",
  "127",
  "128",
  "129",
  "255",
  "256",
  "65535",
  "65536",
  "2147483648",
  "4294967295",
  "4294967296",
  "9007199254740992",
  "1e9",
  "1.5",
  "99999999999999999999",
] as const;

type Mutation = (
  bytes: Uint8Array,
  random: Random,
  target: Target,
  other: Uint8Array,
) => Uint8Array;

const join = (...parts: readonly Uint8Array[]): Uint8Array => new Uint8Array(Buffer.concat(parts));

function span(bytes: Uint8Array, random: Random): readonly [number, number] {
  const from = random.below(bytes.length + 1);
  const most = Math.min(bytes.length - from, random.once(3) ? bytes.length : 16);
  return [from, from + random.below(most + 1)];
}

function writeInteger(bytes: Uint8Array, field: LengthField, value: number): Uint8Array {
  const changed = bytes.slice();
  const view = new DataView(changed.buffer);
  if (field.at + field.bytes > changed.length) return changed;
  if (field.bytes === 2) view.setUint16(field.at, value & 0xffff, field.littleEndian);
  else view.setUint32(field.at, value >>> 0, field.littleEndian);
  return changed;
}

const flipBit: Mutation = (bytes, random) => {
  const changed = bytes.slice();
  const at = random.below(changed.length);
  if (changed.length > 0) changed[at] = (changed[at] as number) ^ (1 << random.below(8));
  return changed;
};

const setByte: Mutation = (bytes, random) => {
  const changed = bytes.slice();
  if (changed.length > 0) changed[random.below(changed.length)] = random.below(256);
  return changed;
};

const insert: Mutation = (bytes, random) => {
  const at = random.below(bytes.length + 1);
  return join(bytes.subarray(0, at), random.bytes(1 + random.below(8)), bytes.subarray(at));
};

const remove: Mutation = (bytes, random) => {
  const [from, to] = span(bytes, random);
  return join(bytes.subarray(0, from), bytes.subarray(to));
};

const duplicate: Mutation = (bytes, random) => {
  const [from, to] = span(bytes, random);
  const times = 1 + random.below(random.once(8) ? 64 : 3);
  const copies = random.list(times, () => bytes.subarray(from, to));
  return join(bytes.subarray(0, to), ...copies, bytes.subarray(to));
};

const cut: Mutation = (bytes, random) => bytes.slice(0, random.below(bytes.length + 1));

const splice: Mutation = (bytes, random, _target, other) =>
  join(
    bytes.subarray(0, random.below(bytes.length + 1)),
    other.subarray(random.below(other.length + 1)),
  );

const spliceInto: Mutation = (bytes, random, _target, other) => {
  const [from, to] = span(other, random);
  const at = random.below(bytes.length + 1);
  return join(bytes.subarray(0, at), other.subarray(from, to), bytes.subarray(at));
};

const putWord: Mutation = (bytes, random, { words = [] }) => {
  if (words.length === 0) return setByte(bytes, random, undefined as never, bytes);
  const word = Buffer.from(random.pick(words));
  const at = random.below(bytes.length + 1);
  const over = random.once(2) ? word.length : 0;
  return join(bytes.subarray(0, at), word, bytes.subarray(at + over));
};

const putInteger: Mutation = (bytes, random) =>
  writeInteger(
    bytes,
    {
      at: random.below(bytes.length + 1),
      bytes: random.once(2) ? 2 : 4,
      littleEndian: random.once(2),
    },
    random.once(3) ? bytes.length + random.below(5) - 2 : random.pick(edges),
  );

const putDecimal: Mutation = (bytes, random) => {
  const text = Buffer.from(bytes).toString("latin1");
  const numbers = [...text.matchAll(/\d+/g)];
  if (numbers.length === 0) return setByte(bytes, random, undefined as never, bytes);
  const { index, 0: digits } = random.pick(numbers);
  const number = random.pick(decimals);
  return new Uint8Array(
    Buffer.from(`${text.slice(0, index)}${number}${text.slice(index + digits.length)}`, "latin1"),
  );
};

const lieAboutLength: Mutation = (bytes, random, target) => {
  const fields = target.lengths?.(bytes) ?? [];
  if (fields.length === 0) return putInteger(bytes, random, target, bytes);
  const field = random.pick(fields);
  const value = random.once(2) ? random.pick(edges) : random.below(bytes.length + 8);
  return writeInteger(bytes, field, value);
};

const changeJson: Mutation = (bytes, random, target, other) =>
  mutateJson(bytes, random, other, target.words ?? []) ?? putWord(bytes, random, target, other);

const mutations: readonly Mutation[] = [
  flipBit,
  setByte,
  insert,
  remove,
  duplicate,
  cut,
  splice,
  spliceInto,
  putWord,
  putInteger,
  putDecimal,
  lieAboutLength,
  lieAboutLength,
  changeJson,
  changeJson,
  changeJson,
];

/** An input like `bytes`, changed in one to four places; `other` lends parts of itself. */
export function mutate(
  bytes: Uint8Array,
  other: Uint8Array,
  random: Random,
  target: Target,
): Uint8Array {
  let changed = bytes;
  const times = 1 + (random.once(3) ? random.below(4) : 0);
  for (let i = 0; i < times; i++) changed = random.pick(mutations)(changed, random, target, other);
  return changed.subarray(0, target.longest ?? 2048);
}
