import {
  type Cidr,
  type Family,
  type Ip,
  ipFromBytes,
  networkOfBytes,
} from "../../core/address.ts";
import { optional } from "./optional.ts";
import { type Attributes, parseAttributes } from "./attributes.ts";
import { AF_INET, AF_INET6 } from "./constants.ts";
import { malformed, Reader } from "./reader.ts";
import {
  RTA_DST,
  RTA_GATEWAY,
  RTA_METRICS,
  RTA_MULTIPATH,
  RTA_OIF,
  RTA_PREFSRC,
  RTA_PRIORITY,
  RTA_TABLE,
  RTA_VIA,
  RTAX_ADVMSS,
  RTAX_MTU,
  RTNH_F_DEAD,
  RTNH_F_LINKDOWN,
  RTNH_F_ONLINK,
  type RouteType,
  routeTypeName,
} from "./route-numbers.ts";
import { scopeName, type Scope } from "./scope.ts";

/** One way of a route with several. */
interface NextHop {
  readonly gateway?: Ip;
  /** Index of the link. */
  readonly link: number;
  readonly weight: number;
  readonly onlink: boolean;
}

/** A route according to the kernel. */
export interface Route {
  readonly family: Family;
  /** `0.0.0.0/0` or `::/0` for a default route. */
  readonly destination: Cidr;
  /** May be of the other family (RFC 8950). */
  readonly gateway?: Ip;
  /** Index of the link it leaves by. */
  readonly link?: number;
  /** Address packets leave with unless they have one. */
  readonly source?: Ip;
  /** 254 is main, 255 local. */
  readonly table: number;
  /** Who made it: 2 the kernel, 3 boot, 4 an administrator, 9 router advertisements, 73 podnet. */
  readonly protocol: number;
  readonly scope: Scope;
  readonly type: RouteType;
  /** Lower is preferred. 0 for IPv4 unless set; IPv6 routes get 1024. */
  readonly metric: number;
  /** The gateway is taken to be on the link although no route says so. */
  readonly onlink: boolean;
  /** The link is down or has no carrier, so the route is not used. */
  readonly dead: boolean;
  readonly mtu?: number;
  /** The MSS that TCP advertises, in bytes. */
  readonly advmss?: number;
  /** Its ways, when it has several. */
  readonly nextHops?: readonly NextHop[];
}

// struct rtmsg: u8 family, dst_len, src_len, tos, table, protocol, scope, type; u32 flags.
const rtmsgSize = 12;
// struct rtnexthop: u16 length, u8 flags, u8 hops, s32 index.
const rtnexthopSize = 8;

/**
 * Parses the payload of RTM_NEWROUTE or RTM_DELROUTE; undefined for a family that is neither IPv4
 * nor IPv6 (multicast and MPLS routes share the message). Throws `NETLINK_FAILED`.
 */
export function parseRoute(payload: Uint8Array): Route | undefined {
  const reader = new Reader(payload, "a route");
  const number = reader.u8(0);
  if (number !== AF_INET && number !== AF_INET6) return undefined;
  const family: Family = number === AF_INET ? 4 : 6;
  const attributes = parseAttributes(reader.rest(rtmsgSize));
  const flags = reader.u32(8);
  const hops = attributes.get(RTA_MULTIPATH);
  const metrics = attributes.nested(RTA_METRICS);
  return {
    family,
    destination: destinationOf(family, attributes.get(RTA_DST), reader.u8(1)),
    ...optional("gateway", gatewayOf(attributes)),
    ...optional("link", attributes.u32(RTA_OIF)),
    ...optional("source", attributes.ip(RTA_PREFSRC)),
    table: attributes.u32(RTA_TABLE) ?? reader.u8(4),
    protocol: reader.u8(5),
    scope: scopeName(reader.u8(6)),
    type: routeTypeName(reader.u8(7)),
    metric: attributes.u32(RTA_PRIORITY) ?? 0,
    onlink: (flags & RTNH_F_ONLINK) !== 0,
    dead: (flags & (RTNH_F_DEAD | RTNH_F_LINKDOWN)) !== 0,
    ...optional("mtu", metrics?.u32(RTAX_MTU)),
    ...optional("advmss", metrics?.u32(RTAX_ADVMSS)),
    ...(hops === undefined ? {} : { nextHops: parseNextHops(hops) }),
  };
}

function destinationOf(family: Family, address: Uint8Array | undefined, length: number): Cidr {
  const bytes = address ?? new Uint8Array(family === 4 ? 4 : 16);
  if (length > bytes.length * 8 || bytes.length !== (family === 4 ? 4 : 16))
    throw malformed(`a route to ${bytes.length} bytes of address/${length}`);
  return networkOfBytes(bytes, length);
}

/** RTA_GATEWAY, or RTA_VIA: u16 family and an address that may be of the other one. */
function gatewayOf(attributes: Attributes): Ip | undefined {
  const via = attributes.get(RTA_VIA);
  if (via === undefined) return attributes.ip(RTA_GATEWAY);
  const address = via.subarray(2);
  return address.length === 4 || address.length === 16 ? ipFromBytes(address) : undefined;
}

function parseNextHops(bytes: Uint8Array): NextHop[] {
  const hops: NextHop[] = [];
  const reader = new Reader(bytes, "a next hop");
  for (let offset = 0; offset + rtnexthopSize <= bytes.length; ) {
    const size = reader.u16(offset);
    if (size < rtnexthopSize || offset + size > bytes.length)
      throw malformed(`a next hop of ${size} bytes`);
    const attributes = parseAttributes(bytes.subarray(offset + rtnexthopSize, offset + size));
    hops.push({
      ...optional("gateway", gatewayOf(attributes)),
      link: reader.i32(offset + 4),
      weight: reader.u8(offset + 3) + 1,
      onlink: (reader.u8(offset + 2) & RTNH_F_ONLINK) !== 0,
    });
    offset += (size + 3) & ~3;
  }
  return hops;
}
