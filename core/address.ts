import type { Brand } from "./brand.ts";
import { PodnetError } from "./errors.ts";
import { printable } from "./names.ts";

/** An IPv4 address in canonical dotted form. */
export type Ipv4 = Brand<string, "Ipv4">;
/** An IPv6 address in RFC 5952 form, without a zone. */
export type Ipv6 = Brand<string, "Ipv6">;
export type Ip = Ipv4 | Ipv6;
export type Family = 4 | 6;

/** A network: no host bits are set. `192.168.123.0/24` */
export type Cidr = Brand<string, "Cidr">;
/** An address with the length of the network it is in: `192.168.123.2/24`. */
export type IpPrefix = Brand<string, "IpPrefix">;
/** A unicast or multicast Ethernet address, lower case with colons. */
export type Mac = Brand<string, "Mac">;

/** Bits in an address of the family. */
export const familyBits = (family: Family): 32 | 128 => (family === 4 ? 32 : 128);

const hints = {
  "an IP address": "Write an address such as 192.168.123.2 or fd00::2, without zone or port",
  "an address with its prefix length":
    "Write an address and a length, such as 192.168.123.2/24 or fd00::2/64",
  "a network": "Write an address and a length, such as 192.168.123.0/24 or fd00::/64",
} as const;

const invalid = (
  text: string,
  wanted: keyof typeof hints,
  field: string | undefined,
): PodnetError =>
  new PodnetError("ADDRESS_INVALID", `"${printable(text)}" is not ${wanted}`, {
    ...(field === undefined ? {} : { field }),
    hint: hints[wanted],
  });

/**
 * Strict dotted decimal, as inet_pton: four parts, no leading zeros. Undefined when it is not that.
 */
function ipv4Bytes(text: string): Uint8Array | undefined {
  const parts = text.split(".");
  if (parts.length !== 4) return undefined;
  const bytes = new Uint8Array(4);
  for (let i = 0; i < 4; i++) {
    const part = parts[i] as string;
    if (!/^(?:0|[1-9][0-9]{0,2})$/.test(part)) return undefined;
    const value = Number(part);
    if (value > 255) return undefined;
    bytes[i] = value;
  }
  return bytes;
}

function ipv6Bytes(text: string): Uint8Array | undefined {
  if (text.length > 45) return undefined;
  let rest = text;
  let tail: Uint8Array | undefined;
  // An embedded IPv4 address replaces the last two groups (RFC 4291 2.2).
  const dot = rest.indexOf(".");
  if (dot >= 0) {
    const colon = rest.lastIndexOf(":");
    if (colon < 0) return undefined;
    tail = ipv4Bytes(rest.slice(colon + 1));
    if (tail === undefined) return undefined;
    rest = `${rest.slice(0, colon + 1)}0:0`;
  }
  const halves = rest.split("::");
  if (halves.length > 2) return undefined;
  const groups = (half: string): number[] | undefined => {
    if (half === "") return [];
    const values: number[] = [];
    for (const group of half.split(":")) {
      if (!/^[0-9a-fA-F]{1,4}$/.test(group)) return undefined;
      values.push(Number.parseInt(group, 16));
    }
    return values;
  };
  const head = groups(halves[0] as string);
  const foot = halves.length === 2 ? groups(halves[1] as string) : [];
  if (head === undefined || foot === undefined) return undefined;
  const missing = 8 - head.length - foot.length;
  if (halves.length === 2 ? missing < 1 : missing !== 0) return undefined;
  const all = [...head, ...Array.from({ length: missing }, () => 0), ...foot];
  const bytes = new Uint8Array(16);
  all.forEach((group, i) => {
    bytes[2 * i] = group >> 8;
    bytes[2 * i + 1] = group & 0xff;
  });
  if (tail !== undefined) bytes.set(tail, 12);
  return bytes;
}

/** RFC 5952: lower case, the longest run of two or more zero groups (the first such) as `::`. */
function ipv6Text(bytes: Uint8Array): Ipv6 {
  const groups: number[] = [];
  for (let i = 0; i < 16; i += 2)
    groups.push(((bytes[i] as number) << 8) | (bytes[i + 1] as number));
  let best = { start: -1, length: 1 };
  for (let i = 0; i < 8; ) {
    if (groups[i] !== 0) {
      i++;
      continue;
    }
    let end = i;
    while (end < 8 && groups[end] === 0) end++;
    if (end - i > best.length) best = { start: i, length: end - i };
    i = end;
  }
  const hex = (part: number[]): string => part.map((g) => g.toString(16)).join(":");
  if (best.start < 0) return hex(groups) as Ipv6;
  return `${hex(groups.slice(0, best.start))}::${hex(groups.slice(best.start + best.length))}` as Ipv6;
}

/** The canonical form; undefined for an invalid address. */
function canonical(text: string): Ip | undefined {
  // Without leading zeros there is one way to write it.
  if (ipv4Bytes(text) !== undefined) return text as Ipv4;
  const six = ipv6Bytes(text);
  return six === undefined ? undefined : ipv6Text(six);
}

/** Parses an address of either family. Throws `ADDRESS_INVALID`. */
export function parseIp(text: string, field?: string): Ip {
  const ip = canonical(text);
  if (ip === undefined) throw invalid(text, "an IP address", field);
  return ip;
}

export function isIp(text: string): boolean {
  return ipv4Bytes(text) !== undefined || ipv6Bytes(text) !== undefined;
}

export const familyOf = (ip: Ip | IpPrefix | Cidr): Family => (ip.includes(":") ? 6 : 4);

/** The 4 or 16 bytes of an address, network order. */
export function ipToBytes(ip: Ip): Uint8Array {
  return (familyOf(ip) === 4 ? ipv4Bytes(ip) : ipv6Bytes(ip)) as Uint8Array;
}

/** An address from its 4 or 16 bytes, network order. */
export function ipFromBytes(bytes: Uint8Array): Ip {
  if (bytes.length === 4) return bytes.join(".") as Ipv4;
  if (bytes.length === 16) return ipv6Text(bytes);
  throw new RangeError(`An IP address has 4 or 16 bytes, not ${bytes.length}`);
}

export function ipToBigInt(ip: Ip): bigint {
  let value = 0n;
  for (const byte of ipToBytes(ip)) value = (value << 8n) | BigInt(byte);
  return value;
}

export function ipFromBigInt(family: Family, value: bigint): Ip {
  const bytes = new Uint8Array(familyBits(family) / 8);
  let rest = value;
  for (let i = bytes.length - 1; i >= 0; i--) {
    bytes[i] = Number(rest & 0xffn);
    rest >>= 8n;
  }
  if (rest !== 0n) throw new RangeError(`${value} does not fit an IPv${family} address`);
  return ipFromBytes(bytes);
}

function splitPrefix(text: string): { ip: Ip; length: number } | undefined {
  const slash = text.indexOf("/");
  if (slash < 0) return undefined;
  const ip = canonical(text.slice(0, slash));
  const length = text.slice(slash + 1);
  if (ip === undefined || !/^(?:0|[1-9][0-9]{0,2})$/.test(length)) return undefined;
  return Number(length) <= familyBits(familyOf(ip)) ? { ip, length: Number(length) } : undefined;
}

/** Parses `address/length`, host bits allowed. Throws `ADDRESS_INVALID`. */
export function parseIpPrefix(text: string, field?: string): IpPrefix {
  const split = splitPrefix(text);
  if (split === undefined) throw invalid(text, "an address with its prefix length", field);
  return `${split.ip}/${split.length}` as IpPrefix;
}

/** Parses a network; host bits are an error. Throws `ADDRESS_INVALID`. */
export function parseCidr(text: string, field?: string): Cidr {
  const split = splitPrefix(text);
  if (split === undefined) throw invalid(text, "a network", field);
  const network = networkOf(`${split.ip}/${split.length}` as IpPrefix);
  if (network !== `${split.ip}/${split.length}`) {
    throw new PodnetError("ADDRESS_INVALID", `"${printable(text)}" has host bits set`, {
      ...(field === undefined ? {} : { field }),
      hint: `Write the network as ${network}`,
    });
  }
  return network;
}

export const ipOf = (prefix: IpPrefix | Cidr): Ip => prefix.slice(0, prefix.indexOf("/")) as Ip;
export const lengthOf = (prefix: IpPrefix | Cidr): number =>
  Number(prefix.slice(prefix.indexOf("/") + 1));
export const withLength = (ip: Ip, length: number): IpPrefix => `${ip}/${length}` as IpPrefix;

/** The network an address with a length is in. */
export const networkOf = (prefix: IpPrefix): Cidr =>
  networkOfBytes(ipToBytes(ipOf(prefix)), lengthOf(prefix));

/** Of the 4 or 16 bytes of an address. (The guest's engine is slow with big integers.) */
export function networkOfBytes(address: Uint8Array, length: number): Cidr {
  const bytes = address.slice();
  const cut = length >> 3;
  if (cut < bytes.length) bytes[cut] = (bytes[cut] as number) & (0xff00 >> (length & 7));
  bytes.fill(0, cut + 1);
  return `${ipFromBytes(bytes)}/${length}` as Cidr;
}

/** First and last address of a network, as integers. */
export function rangeOf(network: Cidr): { first: bigint; last: bigint } {
  const hostBits = BigInt(familyBits(familyOf(network)) - lengthOf(network));
  const first = ipToBigInt(ipOf(network));
  return { first, last: first + (1n << hostBits) - 1n };
}

/** Whether the network holds the address; false across families. */
export function contains(network: Cidr, ip: Ip): boolean {
  if (familyOf(network) !== familyOf(ip)) return false;
  const { first, last } = rangeOf(network);
  const value = ipToBigInt(ip);
  return value >= first && value <= last;
}

/**
 * Finds the first of these networks that holds an address. Their ranges are computed once, which
 * counts where many addresses are looked up.
 */
export function networkFinder(networks: readonly Cidr[]): (ip: Ip) => Cidr | undefined {
  const ranges = networks.map((network) => ({
    network,
    family: familyOf(network),
    ...rangeOf(network),
  }));
  return (ip) => {
    const [family, value] = [familyOf(ip), ipToBigInt(ip)];
    const found = ranges.find(
      (each) => each.family === family && each.first <= value && value <= each.last,
    );
    return found?.network;
  };
}

/** Whether two networks share an address; false across families. */
export function overlaps(a: Cidr, b: Cidr): boolean {
  if (familyOf(a) !== familyOf(b)) return false;
  const left = rangeOf(a);
  const right = rangeOf(b);
  return left.first <= right.last && right.first <= left.last;
}

/** Loopback, 127.0.0.0/8 or ::1: an address that means another machine inside a guest. */
export function isLoopback(ip: Ip): boolean {
  return familyOf(ip) === 4 ? ip.startsWith("127.") : ip === "::1";
}

/** Dotted mask of an IPv4 prefix length: 24 is `255.255.255.0`. */
export function dottedMask(length: number): string {
  const mask = length === 0 ? 0 : (0xffffffff << (32 - length)) >>> 0;
  return [mask >>> 24, (mask >>> 16) & 255, (mask >>> 8) & 255, mask & 255].join(".");
}

/** Parses an Ethernet address; multicast is accepted here, see `parseUnicastMac`. */
export function parseMac(text: string, field?: string): Mac {
  const lower = text.toLowerCase();
  if (!/^[0-9a-f]{2}(?::[0-9a-f]{2}){5}$/.test(lower)) {
    throw new PodnetError("MAC_INVALID", `"${printable(text)}" is not an Ethernet address`, {
      ...(field === undefined ? {} : { field }),
      hint: "Write six pairs of hexadecimal digits, such as 52:54:00:12:34:56",
    });
  }
  return lower as Mac;
}

/** Parses the address of one interface: not multicast, not all zero. Throws `MAC_INVALID`. */
export function parseUnicastMac(text: string, field?: string): Mac {
  const mac = parseMac(text, field);
  if ((macToBytes(mac)[0] as number) & 1 || mac === "00:00:00:00:00:00") {
    throw new PodnetError("MAC_INVALID", `"${mac}" is no address of a single interface`, {
      ...(field === undefined ? {} : { field }),
      hint: "Use a unicast address: the first byte even, not all zero, such as 52:54:00:12:34:56",
    });
  }
  return mac;
}

export function macToBytes(mac: Mac): Uint8Array {
  const bytes = new Uint8Array(6);
  for (let i = 0; i < 6; i++) bytes[i] = Number.parseInt(mac.slice(i * 3, i * 3 + 2), 16);
  return bytes;
}

export function macFromBytes(bytes: Uint8Array): Mac {
  if (bytes.length !== 6)
    throw new RangeError(`An Ethernet address has 6 bytes, not ${bytes.length}`);
  let text = "";
  for (const byte of bytes)
    text += `${text === "" ? "" : ":"}${byte < 16 ? "0" : ""}${byte.toString(16)}`;
  return text as Mac;
}

/** A MAC as runv makes them: `52:54:` and four random bytes. */
export function macFromRandom(random: Uint8Array): Mac {
  return macFromBytes(Uint8Array.of(0x52, 0x54, ...random.subarray(0, 4)));
}
