import { encodeUtf8 } from "../../core/utf8.ts";

/** ECMA-119: a logical sector. */
const sector = 2048;
const rootSector = 20;

const both16 = (value: number): number[] => [value & 255, value >> 8, value >> 8, value & 255];
const little32 = (value: number): number[] =>
  [0, 8, 16, 24].map((shift) => (value >>> shift) & 255);
const both32 = (value: number): number[] => [...little32(value), ...little32(value).reverse()];
const text = (value: string, length: number): Uint8Array => encodeUtf8(value.padEnd(length, " "));

/**
 * A volume with some files in one directory (ECMA-119), with their unchanged names by Rock Ridge
 * (IEEE P1282). Equal files give equal bytes. Throws `RangeError` for more files than fit into a
 * sector.
 */
export function iso9660(volume: string, files: Readonly<Record<string, string>>): Uint8Array {
  let next = rootSector + 1;
  const placed = Object.entries(files).map(([name, content]) => {
    const data = encodeUtf8(content);
    const at = next;
    next += Math.ceil(data.length / sector);
    return { name, data, at };
  });
  const root = Uint8Array.from([
    ...record({
      name: [0],
      at: rootSector,
      length: sector,
      directory: true,
      use: [...sharing, ...mode(true)],
    }),
    ...record({ name: [1], at: rootSector, length: sector, directory: true, use: mode(true) }),
    ...placed.flatMap(({ name, data, at }, i) =>
      record({
        name: encodeUtf8(`FILE${i}.;1`),
        at,
        length: data.length,
        directory: false,
        use: [...mode(false), ...named(name)],
      }),
    ),
  ]);
  if (root.length > sector) throw new RangeError("Too many files");
  const image = new Uint8Array(next * sector);
  const put = (at: number, bytes: ArrayLike<number>): void => image.set(bytes, at * sector);
  put(16, primary(volume, next));
  put(17, [255, ...encodeUtf8("CD001"), 1]);
  put(18, [1, 0, ...little32(rootSector), 1, 0, 0, 0]);
  put(19, [1, 0, ...little32(rootSector).reverse(), 0, 1, 0, 0]);
  put(rootSector, root);
  for (const { data, at } of placed) put(at, data);
  return image;
}

/** The descriptor that says where everything is (section 8.4). */
function primary(volume: string, sectors: number): Uint8Array {
  const bytes = new Uint8Array(sector);
  bytes.set([1, ...encodeUtf8("CD001"), 1]);
  bytes.set(text("", 32), 8);
  bytes.set(text(volume, 32), 40);
  bytes.set(both32(sectors), 80);
  bytes.set([...both16(1), ...both16(1), ...both16(sector), ...both32(10)], 120);
  bytes.set(little32(18), 140);
  bytes.set(little32(19).reverse(), 148);
  bytes.set(record({ name: [0], at: rootSector, length: sector, directory: true, use: [] }), 156);
  bytes.set(text("", 623), 190);
  // Four dates, all unset. The zone after each is a number.
  for (const at of [813, 830, 847, 864]) bytes.set(encodeUtf8("0".repeat(16)), at);
  bytes[881] = 1;
  return bytes;
}

interface Entry {
  readonly name: ArrayLike<number>;
  readonly at: number;
  readonly length: number;
  readonly directory: boolean;
  /** Rock Ridge's. */
  readonly use: readonly number[];
}

/** A directory's record of a file (section 9.1). */
function record({ name, at, length, directory, use }: Entry): number[] {
  const names = Array.from(name);
  if (names.length % 2 === 0) names.push(0);
  const rest = [
    0,
    ...both32(at),
    ...both32(length),
    70,
    1,
    1,
    0,
    0,
    0,
    0,
    directory ? 2 : 0,
    0,
    0,
    ...both16(1),
    name.length,
    ...names,
    ...use,
  ];
  if (rest.length % 2 === 0) rest.push(0);
  return [rest.length + 1, ...rest];
}

/**
 * SP and ER of the System Use Sharing Protocol: they declare that extensions are used, and which.
 */
const sharing = [
  ...encodeUtf8("SP"),
  7,
  1,
  0xbe,
  0xef,
  0,
  ...encodeUtf8("ER"),
  18,
  1,
  10,
  0,
  0,
  1,
  ...encodeUtf8("RRIP_1991A"),
];

/** Everybody may read it; root's. */
const mode = (directory: boolean): number[] => [
  ...encodeUtf8("PX"),
  36,
  1,
  ...both32(directory ? 0o40_555 : 0o100_444),
  ...both32(1),
  ...both32(0),
  ...both32(0),
];

const named = (name: string): number[] => {
  const bytes = encodeUtf8(name);
  return [...encodeUtf8("NM"), 5 + bytes.length, 1, 0, ...bytes];
};
