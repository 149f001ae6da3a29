import {
  familyOf,
  type Ip,
  ipFromBigInt,
  ipToBigInt,
  networkOf,
  parseIp,
  parseIpPrefix,
  rangeOf,
} from "./address.ts";
import { PodnetError } from "./errors.ts";
import { printable } from "./names.ts";

/** Addresses of one family from the first to the last. */
export interface IpRange {
  readonly first: Ip;
  readonly last: Ip;
}

/** Reads an address, a network or `FIRST-LAST`. Throws `ADDRESS_INVALID`. */
export function parseIpRange(text: string, field = "range"): IpRange {
  if (text.includes("/")) {
    const network = networkOf(parseIpPrefix(text, field));
    const { first, last } = rangeOf(network);
    const family = familyOf(network);
    return { first: ipFromBigInt(family, first), last: ipFromBigInt(family, last) };
  }
  const dash = text.indexOf("-");
  if (dash < 0) return { first: parseIp(text, field), last: parseIp(text, field) };
  const first = parseIp(text.slice(0, dash).trim(), field);
  const last = parseIp(text.slice(dash + 1).trim(), field);
  if (familyOf(first) !== familyOf(last))
    throw refuse(text, "is of two families", "Write two addresses of one family", field);
  if (ipToBigInt(first) > ipToBigInt(last))
    throw refuse(text, "ends before it starts", "Write the lower address first", field);
  return { first, last };
}

/** The text of a range. */
export const ipRangeText = ({ first, last }: IpRange): string =>
  first === last ? first : `${first}-${last}`;

const refuse = (text: string, what: string, hint: string, field: string): PodnetError =>
  new PodnetError("ADDRESS_INVALID", `"${printable(text)}" ${what}`, { hint, field });
