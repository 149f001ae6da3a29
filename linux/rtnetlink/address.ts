import {
  familyBits,
  familyOf,
  type Ip,
  ipOf,
  type IpPrefix,
  ipToBytes,
  lengthOf,
  withLength,
} from "../../core/address.ts";
import { optional } from "./optional.ts";
import { parseAttributes } from "./attributes.ts";
import { AF_INET, AF_INET6, RTM_DELADDR, RTM_GETADDR, RTM_NEWADDR } from "./constants.ts";
import { familyFilter, familyNumber } from "./family.ts";
import { NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, NLM_F_REPLACE, type Request } from "./message.ts";
import { malformed, Reader } from "./reader.ts";
import { scopeName, scopeNumber, type Scope } from "./scope.ts";
import { Writer } from "./writer.ts";

// include/uapi/linux/if_addr.h (Linux 6.1)
const IFA_ADDRESS = 1;
const IFA_LOCAL = 2;
const IFA_LABEL = 3;
const IFA_BROADCAST = 4;
const IFA_FLAGS = 8;
const IFA_RT_PRIORITY = 9;
const IFA_PROTO = 11;

const IFA_F_NODAD = 0x02;
const IFA_F_DADFAILED = 0x08;
const IFA_F_DEPRECATED = 0x20;
const IFA_F_TENTATIVE = 0x40;
const IFA_F_PERMANENT = 0x80;
const IFA_F_NOPREFIXROUTE = 0x200;

/** An address on a link. */
export interface LinkAddress {
  /** Index of the link. */
  readonly index: number;
  readonly prefix: IpPrefix;
  /** The other end of a point-to-point link. */
  readonly peer?: Ip;
  readonly broadcast?: Ip;
  /** IPv4 only; the link's name unless set. */
  readonly label?: string;
  readonly scope: Scope;
  /** It does not expire. */
  readonly permanent: boolean;
  /** IPv6: duplicate detection is under way, and it cannot be used yet. */
  readonly tentative: boolean;
  /** IPv6: someone else has it. */
  readonly dadFailed: boolean;
  readonly deprecated: boolean;
  /** The kernel made no route to its network. */
  readonly noPrefixRoute: boolean;
  /** IFA_PROTO (Linux 5.18): who put it there; 1 loopback, 2 router advertisement, 3 link-local. */
  readonly protocol?: number;
}

export interface AddressOptions {
  readonly broadcast?: Ip;
  readonly label?: string;
  readonly scope?: Scope;
  /** IPv6: usable at once, without duplicate detection. */
  readonly noDad?: boolean;
  /** Make no route to the address's network. */
  readonly noPrefixRoute?: boolean;
  /** Metric of the route to the address's network. */
  readonly metric?: number;
  /** Change an address that is there already, rather than fail with `EEXIST`. */
  readonly replace?: boolean;
}

// struct ifaddrmsg: u8 family, u8 prefix length, u8 flags, u8 scope, u32 index.
const ifaddrmsgSize = 8;

/**
 * Scope of an address that is not parsed yet: most that a machine has are its own alone, and need
 * not be.
 */
export const scopeOfAddress = (payload: Uint8Array): Scope =>
  scopeName(new Reader(payload, "an address").u8(3));

/**
 * Parses the payload of RTM_NEWADDR or RTM_DELADDR; undefined for families other than IP (a list
 * may hold Phonet's or MCTP's addresses, too). Throws `NETLINK_FAILED`.
 */
export function parseAddress(payload: Uint8Array): LinkAddress | undefined {
  const reader = new Reader(payload, "an address");
  const family = reader.u8(0);
  if (family !== AF_INET && family !== AF_INET6) return undefined;
  const attributes = parseAttributes(reader.rest(ifaddrmsgSize));
  const address = attributes.ip(IFA_ADDRESS);
  // Without IFA_LOCAL (IPv6) IFA_ADDRESS is the address; with both, IFA_ADDRESS is the peer's.
  const local = attributes.ip(IFA_LOCAL) ?? address;
  if (local === undefined) throw malformed("an address message without an address");
  const length = reader.u8(1);
  if (length > familyBits(familyOf(local)))
    throw malformed(`an address message with ${local}/${length}`);
  const flags = attributes.u32(IFA_FLAGS) ?? reader.u8(2);
  return {
    index: reader.u32(4),
    prefix: withLength(local, length),
    ...(address === undefined || address === local ? {} : { peer: address }),
    ...optional("broadcast", attributes.ip(IFA_BROADCAST)),
    ...optional("label", attributes.text(IFA_LABEL)),
    scope: scopeName(reader.u8(3)),
    permanent: (flags & IFA_F_PERMANENT) !== 0,
    tentative: (flags & IFA_F_TENTATIVE) !== 0,
    dadFailed: (flags & IFA_F_DADFAILED) !== 0,
    deprecated: (flags & IFA_F_DEPRECATED) !== 0,
    noPrefixRoute: (flags & IFA_F_NOPREFIXROUTE) !== 0,
    ...optional("protocol", attributes.u8(IFA_PROTO)),
  };
}

/** struct ifaddrmsg and the address. The eight-bit flags stay zero: IFA_FLAGS overrides them. */
function ifaddrmsg(index: number, prefix: IpPrefix, scope: Scope): Writer {
  const bytes = ipToBytes(ipOf(prefix));
  return new Writer()
    .u8(familyNumber(prefix))
    .u8(lengthOf(prefix))
    .u8(0)
    .u8(scopeNumber(scope))
    .u32(index)
    .attribute(IFA_LOCAL, bytes)
    .attribute(IFA_ADDRESS, bytes);
}

/** Puts an address on a link. `EEXIST` when it is there and `replace` is not set. */
export function addAddress(index: number, prefix: IpPrefix, options: AddressOptions = {}): Request {
  const writer = ifaddrmsg(index, prefix, options.scope ?? "global");
  if (options.broadcast !== undefined)
    writer.attribute(IFA_BROADCAST, ipToBytes(options.broadcast));
  if (options.label !== undefined) writer.attributeText(IFA_LABEL, options.label);
  const flags =
    (options.noDad === true ? IFA_F_NODAD : 0) |
    (options.noPrefixRoute === true ? IFA_F_NOPREFIXROUTE : 0);
  if (flags !== 0) writer.attributeU32(IFA_FLAGS, flags);
  if (options.metric !== undefined) writer.attributeU32(IFA_RT_PRIORITY, options.metric);
  return {
    type: RTM_NEWADDR,
    flags: NLM_F_CREATE | (options.replace === true ? NLM_F_REPLACE : NLM_F_EXCL),
    payload: writer.finish(),
    what: `Cannot add address ${prefix} to link ${index}`,
  };
}

/** Takes an address off a link. `EADDRNOTAVAIL` when it is not there. */
export const deleteAddress = (index: number, prefix: IpPrefix): Request => ({
  type: RTM_DELADDR,
  flags: 0,
  payload: ifaddrmsg(index, prefix, "global").finish(),
  what: `Cannot delete address ${prefix} of link ${index}`,
});

export interface AddressFilter {
  readonly index?: number;
  readonly family?: 4 | 6;
}

/**
 * Asks for all addresses. A kernel with strict checking (4.20) filters by link; others send all of
 * them.
 */
export const getAddresses = (filter: AddressFilter = {}): Request => ({
  type: RTM_GETADDR,
  flags: NLM_F_DUMP,
  payload: new Writer()
    .u8(familyFilter(filter.family))
    .u8(0)
    .u8(0)
    .u8(0)
    .u32(filter.index ?? 0)
    .finish(),
  what: "Cannot list addresses",
});
