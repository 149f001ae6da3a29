import { type Cidr, type Ip, ipFromBytes, networkOf, withLength } from "../../core/address.ts";

/**
 * The addresses a name below in-addr.arpa or ip6.arpa is about (RFC 1035 section 3.5, RFC 3596
 * section 2.5).
 */
export interface ReverseName {
  readonly network: Cidr;
  /** The one address, where the name is that of one. */
  readonly ip?: Ip;
}

/** Parses a name in lower case, without its final dot; undefined when it is not a reverse name. */
export function parseReverseName(name: string): ReverseName | undefined {
  const four = /^(?:(.+)\.)?in-addr\.arpa$/.exec(name);
  if (four !== null) return reverse(four[1], 4, octet, 1);
  const six = /^(?:(.+)\.)?ip6\.arpa$/.exec(name);
  return six === null ? undefined : reverse(six[1], 16, nibble, 2);
}

const octet = (label: string): number | undefined =>
  /^(?:0|[1-9][0-9]{0,2})$/.test(label) && Number(label) < 256 ? Number(label) : undefined;

const nibble = (label: string): number | undefined =>
  /^[0-9a-f]$/.test(label) ? Number.parseInt(label, 16) : undefined;

/** Labels come least significant first, a fixed number for each byte. */
function reverse(
  text: string | undefined,
  size: number,
  value: (label: string) => number | undefined,
  perByte: number,
): ReverseName | undefined {
  const labels = (text?.split(".") ?? []).toReversed();
  if (labels.length > size * perByte) return undefined;
  const bits = 8 / perByte;
  const bytes = new Uint8Array(size);
  for (const [i, label] of labels.entries()) {
    const part = value(label);
    if (part === undefined) return undefined;
    const at = Math.floor(i / perByte);
    bytes[at] = (bytes[at] ?? 0) | (part << (bits * (perByte - 1 - (i % perByte))));
  }
  const ip = ipFromBytes(bytes);
  const length = labels.length * bits;
  const network = networkOf(withLength(ip, length));
  return labels.length === size * perByte ? { network, ip } : { network };
}
