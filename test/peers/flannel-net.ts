/**
 * A range of addresses of either family, as the stand-in for flannel counts with it: numbers, not
 * text.
 */
export interface Net {
  readonly family: 4 | 6;
  readonly base: bigint;
  readonly length: number;
}

const width = ({ family }: Pick<Net, "family">): number => (family === 4 ? 32 : 128);

/** How many addresses a range of this length has. */
export const sizeOf = (net: Pick<Net, "family" | "length">): bigint =>
  1n << BigInt(width(net) - net.length);

/** Compressed as Go writes it: the longest run of zeros, in lower case. */
const canonical6 = (text: string): string => new URL(`http://[${text}]`).hostname.slice(1, -1);

function number6(text: string): bigint {
  const [left = "", right] = canonical6(text).split("::");
  const words = (half: string): string[] => (half === "" ? [] : half.split(":"));
  const start = words(left);
  const end = right === undefined ? [] : words(right);
  const all = [...start, ...Array<string>(8 - start.length - end.length).fill("0"), ...end];
  return all.reduce((sum, word) => (sum << 16n) | BigInt(`0x${word}`), 0n);
}

/** The number of an address; undefined for text that is none. */
export function parseIp(text: string): Omit<Net, "length"> | undefined {
  if (text.includes(":")) {
    try {
      return { family: 6, base: number6(text) };
    } catch {
      return undefined;
    }
  }
  const parts = /^(\d{1,3})\.(\d{1,3})\.(\d{1,3})\.(\d{1,3})$/.exec(text)?.slice(1).map(Number);
  if (parts === undefined || parts.some((part) => part > 255)) return undefined;
  return { family: 4, base: parts.reduce((sum, part) => (sum << 8n) | BigInt(part), 0n) };
}

/** An address in text. */
export function ipText({ family, base }: Omit<Net, "length">): string {
  if (family === 4) return [24n, 16n, 8n, 0n].map((shift) => (base >> shift) & 255n).join(".");
  const words = Array.from({ length: 8 }, (_, i) =>
    ((base >> BigInt(112 - 16 * i)) & 0xffffn).toString(16),
  );
  return canonical6(words.join(":"));
}

/** `ADDRESS/LENGTH`, host bits masked. */
export function parseNet(text: string): Net | undefined {
  const [address = "", length = ""] = text.split("/");
  const ip = parseIp(address);
  if (ip === undefined || !/^\d{1,3}$/.test(length) || Number(length) > width(ip)) return undefined;
  return masked({ ...ip, length: Number(length) });
}

/** The range that `net`'s address stands in. */
export const masked = (net: Net): Net => ({ ...net, base: net.base - (net.base % sizeOf(net)) });

/** The address `offset` after the first, in text. */
export const addressIn = (net: Net, offset = 0n): string =>
  ipText({ family: net.family, base: net.base + offset });

/** `ADDRESS/LENGTH` of the range. */
export const netText = (net: Net): string => `${addressIn(net)}/${net.length}`;

/** Whether `inner` lies in `outer`. */
export const within = (outer: Net, inner: Net): boolean =>
  outer.family === inner.family &&
  inner.base >= outer.base &&
  inner.base + sizeOf(inner) <= outer.base + sizeOf(outer);

/** Whether the two have an address in common. */
export const overlaps = (a: Net, b: Net): boolean =>
  a.family === b.family && a.base < b.base + sizeOf(b) && b.base < a.base + sizeOf(a);
