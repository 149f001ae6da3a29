import { ipToBytes } from "../../core/address.ts";
import { parseIpRange } from "../../core/ip-range.ts";
import { encodeUtf8 } from "../../core/utf8.ts";

/** The bytes of one value, or of a range of values. */
export interface Datum {
  readonly first: Uint8Array;
  /** Equal to `first` for one value. */
  readonly last: Uint8Array;
}

/** include/uapi/linux/if.h (Linux 6.1): a name fills them, with NUL bytes behind it. */
const IFNAMSIZ = 16;

/**
 * Numbers in the order of the network, by their bytes: they are compared with fields of packets
 * (src/datatype.c, src/proto.c and src/ct.c of nft 1.0.6: BYTEORDER_BIG_ENDIAN).
 */
const ofPackets: Readonly<Record<string, number>> = {
  inet_proto: 1,
  inet_service: 2,
  ether_type: 2,
};

/** Numbers in the machine's order: the kernel makes them itself (src/meta.c of nft 1.0.6). */
const ofKernel = new Set(["devgroup", "mark", "classid", "numgen inc mod 2"]);

/**
 * Encodes a value of one of nft's types as a register of nf_tables has it: a word of nft's
 * language, or a range of those (`10.0.0.0/8`, `80-90`). `@ll,48,48` is the type of bits that are
 * read from a packet, in whole bytes and the order of the network.
 */
function encodeDatum(type: string, word: string): Datum {
  if (type === "ifname") return single(nameBytes(word));
  if (type === "ipv4_addr" || type === "ipv6_addr") {
    const { first, last } = parseIpRange(word);
    return { first: ipToBytes(first), last: ipToBytes(last) };
  }
  if (ofKernel.has(type)) return single(numberBytes(numberOf(type, word), 4).toReversed());
  const size = ofPackets[type] ?? rawSize(type);
  if (size === undefined) throw new RangeError(`Elements of type ${type} are not known`);
  const [first = "", last = first] = word.split("-");
  return {
    first: numberBytes(numberOf(type, first), size),
    last: numberBytes(numberOf(type, last), size),
  };
}

/**
 * Encodes a value, or a concatenation of them, `"tap2" . 10.0.0.2`: there each begins at a register
 * of four bytes, and zeros fill its last one (`netlink_padded_len` of nft 1.0.6, NFT_REG32_SIZE of
 * the kernel's nf_tables.h). A value that stands alone has no padding. Pure. Throws `RangeError`
 * for another type, and for a word that is no value of it.
 */
export function encodeData(types: readonly string[], words: string): Datum {
  const parts = words.split(" . ");
  if (parts.length !== types.length)
    throw new RangeError(`"${words}" is no value of ${types.join(" . ")}`);
  const data = types.map((type, i) => encodeDatum(type, parts[i] ?? ""));
  const [only, ...others] = data;
  if (only !== undefined && others.length === 0) return only;
  return {
    first: inRegisters(data.map(({ first }) => first)),
    last: inRegisters(data.map(({ last }) => last)),
  };
}

/** The address or number after this one; undefined after the last of all. Pure. */
export function successor(bytes: Uint8Array): Uint8Array | undefined {
  const next = bytes.slice();
  for (let i = next.length - 1; i >= 0; i--) {
    const byte = next[i] as number;
    next[i] = (byte + 1) & 0xff;
    if (byte < 0xff) return next;
  }
  return undefined;
}

const single = (bytes: Uint8Array): Datum => ({ first: bytes, last: bytes });

function nameBytes(word: string): Uint8Array {
  const name = encodeUtf8(word.replace(/^"(.*)"$/, "$1"));
  if (name.length === 0 || name.length >= IFNAMSIZ)
    throw new RangeError(`${word} is no name of a link`);
  const bytes = new Uint8Array(IFNAMSIZ);
  bytes.set(name);
  return bytes;
}

/** Bytes of a field of a packet, of `@BASE,OFFSET,LENGTH` in bits. */
function rawSize(type: string): number | undefined {
  const [, bits] = /^@\w+,\d+,(\d+)$/.exec(type) ?? [];
  const size = Number(bits) / 8;
  return Number.isInteger(size) ? size : undefined;
}

function numberOf(type: string, word: string): bigint {
  const [, major, minor] =
    type === "classid" ? (/^([0-9a-f]{1,4}):([0-9a-f]{1,4})$/.exec(word) ?? []) : [];
  if (major !== undefined) return BigInt(`0x${major}${minor?.padStart(4, "0")}`);
  if (!/^(?:0x[0-9a-f]+|[0-9]+)$/.test(word)) throw new RangeError(`"${word}" is no ${type}`);
  return BigInt(word);
}

/** In the order of the network. */
function numberBytes(value: bigint, size: number): Uint8Array {
  if (value >= 1n << BigInt(8 * size))
    throw new RangeError(`${value} needs more than ${size} bytes`);
  return Uint8Array.from({ length: size }, (_, i) =>
    Number((value >> BigInt(8 * (size - 1 - i))) & 0xffn),
  );
}

function inRegisters(parts: readonly Uint8Array[]): Uint8Array {
  const padded = parts.map(({ length }) => (length + 3) & ~3);
  const bytes = new Uint8Array(padded.reduce((sum, size) => sum + size, 0));
  let at = 0;
  for (const [i, part] of parts.entries()) {
    bytes.set(part, at);
    at += padded[i] ?? 0;
  }
  return bytes;
}
