import {
  type Cidr,
  type Family,
  familyBits,
  familyOf,
  type Ip,
  ipFromBigInt,
  ipToBytes,
  lengthOf,
  parseCidr,
  parseIp,
  rangeOf,
} from "../core/address.ts";
import { PodnetError } from "../core/errors.ts";
import { Bitmap, bitmapLimit } from "./bitmap.ts";
import type { Occupancy, Offset } from "./occupancy.ts";
import { SparseSet } from "./sparse.ts";

/**
 * Shortest and longest prefix a pool can have. A /31 or /32 has no room for network, broadcast and
 * a pod.
 */
const poolLengths = {
  4: { shortest: 8, longest: 30 },
  6: { shortest: 8, longest: 126 },
} as const;

/** The addresses of one network, as text and as offsets. */
export interface Space {
  readonly network: Cidr;
  readonly family: Family;
  readonly size: bigint;
  readonly first: Offset;
  readonly last: Offset;
  /**
   * Undefined when the address is not in the network. Throws `ADDRESS_INVALID` when the text is no
   * address.
   */
  offsetOf(ip: Ip): Offset | undefined;
  ipAt(offset: Offset): Ip;
  /** The offset after; undefined at the end. */
  after(offset: Offset): Offset | undefined;
  before(offset: Offset): Offset;
  /** An empty set of this space's offsets. */
  emptySet(): Occupancy;
}

/**
 * The space of a network. Throws `ADDRESS_INVALID` or `INVALID_ARGUMENT` when it cannot be a pool.
 */
export function openSpace(text: string): Space {
  const network = parseCidr(text, "network");
  const family = familyOf(network);
  const length = lengthOf(network);
  const { shortest, longest } = poolLengths[family];
  if (length < shortest || length > longest) {
    throw new PodnetError("INVALID_ARGUMENT", `Network "${network}" cannot be a pool`, {
      field: "network",
      hint: `Use an IPv${family} network of length /${shortest} to /${longest}`,
      details: { network, shortest, longest },
    });
  }
  const size = 1n << BigInt(familyBits(family) - length);
  if (size > BigInt(bitmapLimit)) return largeSpace(network, size);
  return family === 4 ? ipv4Space(network, Number(size)) : smallIpv6Space(network, Number(size));
}

function numberSpace(network: Cidr, size: number): Omit<Space, "offsetOf" | "ipAt"> {
  return {
    network,
    family: familyOf(network),
    size: BigInt(size),
    first: 0,
    last: size - 1,
    after: (offset) => ((offset as number) + 1 < size ? (offset as number) + 1 : undefined),
    before: (offset) => (offset as number) - 1,
    emptySet: () => new Bitmap(size),
  };
}

function ipv4Space(network: Cidr, size: number): Space {
  const base = Number(rangeOf(network).first);
  return {
    ...numberSpace(network, size),
    offsetOf: (ip) => {
      const value = parseIpv4(ip);
      // Throws when it is no address of either family.
      if (value < 0) parseIp(ip);
      return value >= base && value < base + size ? value - base : undefined;
    },
    ipAt: (offset) => {
      const value = base + (offset as number);
      return `${value >>> 24}.${(value >>> 16) & 255}.${(value >>> 8) & 255}.${value & 255}` as Ip;
    },
  };
}

function smallIpv6Space(network: Cidr, size: number): Space {
  const base = rangeOf(network).first;
  return {
    ...numberSpace(network, size),
    offsetOf: (ip) => {
      const offset = ipv6Offset(ip, base, BigInt(size));
      return offset === undefined ? undefined : Number(offset);
    },
    ipAt: (offset) => ipFromBigInt(6, base + BigInt(offset)),
  };
}

function largeSpace(network: Cidr, size: bigint): Space {
  const base = rangeOf(network).first;
  return {
    network,
    family: familyOf(network),
    size,
    first: 0n,
    last: size - 1n,
    offsetOf: (ip) => ipv6Offset(ip, base, size),
    ipAt: (offset) => ipFromBigInt(6, base + (offset as bigint)),
    after: (offset) => ((offset as bigint) + 1n < size ? (offset as bigint) + 1n : undefined),
    before: (offset) => (offset as bigint) - 1n,
    emptySet: () => new SparseSet(size),
  };
}

function ipv6Offset(ip: Ip, base: bigint, size: bigint): bigint | undefined {
  const bytes: Uint8Array | undefined = ipToBytes(ip);
  // The brand says otherwise, but the ancestor leaked every address over an unchecked "ip/length".
  if (bytes === undefined) parseIp(ip);
  if (bytes?.length !== 16) return undefined;
  const view = new DataView(bytes.buffer, bytes.byteOffset, 16);
  const offset = ((view.getBigUint64(0) << 64n) | view.getBigUint64(8)) - base;
  return offset >= 0n && offset < size ? offset : undefined;
}

/** Strict dotted decimal as a number, -1 when it is not that: `parseIp` without the garbage. */
export function parseIpv4(text: string): number {
  let value = 0;
  let part = 0;
  let digits = 0;
  let dots = 0;
  for (let i = 0; i < text.length; i++) {
    const code = text.charCodeAt(i);
    if (code === 46) {
      if (digits === 0 || ++dots > 3) return -1;
      value = value * 256 + part;
      part = 0;
      digits = 0;
    } else if (code >= 48 && code <= 57) {
      if (digits > 0 && part === 0) return -1;
      part = part * 10 + code - 48;
      if (part > 255) return -1;
      digits++;
    } else return -1;
  }
  return dots === 3 && digits > 0 ? value * 256 + part : -1;
}
