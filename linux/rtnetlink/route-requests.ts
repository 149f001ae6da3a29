import {
  type Cidr,
  familyBits,
  familyOf,
  type Ip,
  ipOf,
  ipToBytes,
  lengthOf,
} from "../../core/address.ts";
import { RTM_DELROUTE, RTM_GETROUTE, RTM_NEWROUTE } from "./constants.ts";
import { familyFilter, familyNumber } from "./family.ts";
import {
  NLM_F_APPEND,
  NLM_F_CREATE,
  NLM_F_DUMP,
  NLM_F_EXCL,
  NLM_F_REPLACE,
  type Request,
} from "./message.ts";
import {
  RT_TABLE_MAIN,
  RTA_DST,
  RTA_GATEWAY,
  RTA_METRICS,
  RTA_OIF,
  RTA_PREFSRC,
  RTA_PRIORITY,
  RTA_TABLE,
  RTA_VIA,
  RTAX_ADVMSS,
  RTAX_MTU,
  RTNH_F_ONLINK,
  type RouteType,
  routeTypeNumber,
} from "./route-numbers.ts";
import { type Scope, scopeNumber } from "./scope.ts";
import { Writer } from "./writer.ts";

/** A route to make. */
export interface NewRoute {
  readonly destination: Cidr;
  readonly gateway?: Ip;
  /** Index of the link; undefined lets the kernel find it by the gateway. */
  readonly link?: number;
  readonly source?: Ip;
  /** 254, main, unless given. */
  readonly table?: number;
  /** 3, boot, unless given, as `ip route` does. */
  readonly protocol?: number;
  /** Unless given: `host` for local routes, `link` for IPv4 without a gateway, else `global`. */
  readonly scope?: Scope;
  readonly type?: RouteType;
  readonly metric?: number;
  readonly onlink?: boolean;
  readonly mtu?: number;
  /** The MSS that TCP advertises, in bytes. */
  readonly advmss?: number;
}

const RTPROT_BOOT = 3;

/** struct rtmsg and what the three kinds of request share, in iproute2's order. */
function rtmsg(route: NewRoute, protocol: number, scope: number, type: number): Writer {
  const table = route.table ?? RT_TABLE_MAIN;
  const writer = new Writer()
    .u8(familyNumber(route.destination))
    .u8(lengthOf(route.destination))
    .u8(0)
    .u8(0)
    // Eight bits only; RTA_TABLE holds larger ones, and overrides this.
    .u8(table < 256 ? table : 0)
    .u8(protocol)
    .u8(scope)
    .u8(type)
    .u32(route.onlink === true ? RTNH_F_ONLINK : 0);
  if (lengthOf(route.destination) > 0)
    writer.attribute(RTA_DST, ipToBytes(ipOf(route.destination)));
  if (table > 255) writer.attributeU32(RTA_TABLE, table);
  if (route.gateway !== undefined) writeGateway(writer, route.destination, route.gateway);
  if (route.source !== undefined) writer.attribute(RTA_PREFSRC, ipToBytes(route.source));
  if (route.metric !== undefined) writer.attributeU32(RTA_PRIORITY, route.metric);
  const { mtu, advmss } = route;
  if (mtu !== undefined || advmss !== undefined)
    writer.nested(RTA_METRICS, (metrics) => {
      if (mtu !== undefined) metrics.attributeU32(RTAX_MTU, mtu);
      if (advmss !== undefined) metrics.attributeU32(RTAX_ADVMSS, advmss);
    });
  if (route.link !== undefined) writer.attributeU32(RTA_OIF, route.link);
  return writer;
}

function writeGateway(writer: Writer, destination: Cidr, gateway: Ip): void {
  const bytes = ipToBytes(gateway);
  if (familyOf(gateway) === familyOf(destination)) {
    writer.attribute(RTA_GATEWAY, bytes);
    return;
  }
  // struct rtvia: u16 family, then the address.
  const via = new Uint8Array(2 + bytes.length);
  via[0] = familyNumber(gateway);
  via.set(bytes, 2);
  writer.attribute(RTA_VIA, via);
}

/** The default scope of `ip route` (iproute2's iproute.c): the kernel refuses wrong ones. */
function defaultScope(route: NewRoute): Scope {
  if (route.type === "local") return "host";
  const direct = route.gateway === undefined && (route.type ?? "unicast") === "unicast";
  return direct && familyOf(route.destination) === 4 ? "link" : "global";
}

function newRoute(route: NewRoute, flags: number, verb: string): Request {
  const writer = rtmsg(
    route,
    route.protocol ?? RTPROT_BOOT,
    scopeNumber(route.scope ?? defaultScope(route)),
    routeTypeNumber(route.type ?? "unicast"),
  );
  return {
    type: RTM_NEWROUTE,
    flags: NLM_F_CREATE | flags,
    payload: writer.finish(),
    what: `Cannot ${verb} route ${describe(route)}`,
  };
}

function describe(route: NewRoute): string {
  const via = route.gateway === undefined ? "" : ` via ${route.gateway}`;
  const link = route.link === undefined ? "" : ` on link ${route.link}`;
  return `${route.destination}${via}${link}`;
}

/** Makes a route. `EEXIST` when there is one to the same destination with the same metric. */
export const addRoute = (route: NewRoute): Request => newRoute(route, NLM_F_EXCL, "add");

/**
 * Makes a route behind those to the same destination with the same metric, if any. `EEXIST` when it
 * is there itself.
 */
export const appendRoute = (route: NewRoute): Request => newRoute(route, NLM_F_APPEND, "append");

/** Makes a route in place of the one with the same destination, table and metric, if any. */
export const replaceRoute = (route: NewRoute): Request => newRoute(route, NLM_F_REPLACE, "replace");

/** Removes the route that matches everything given. `ESRCH` when there is none. */
export function deleteRoute(route: NewRoute): Request {
  // Scope nowhere, type 0 and protocol 0 match any.
  const writer = rtmsg(
    route,
    route.protocol ?? 0,
    scopeNumber(route.scope ?? "nowhere"),
    routeTypeNumber(route.type ?? "unspec"),
  );
  return {
    type: RTM_DELROUTE,
    flags: 0,
    payload: writer.finish(),
    what: `Cannot delete route ${describe(route)}`,
  };
}

export interface RouteFilter {
  readonly family?: 4 | 6;
  readonly table?: number;
  readonly protocol?: number;
  /** Index of the link. */
  readonly link?: number;
}

/** Asks for all routes. A kernel with strict checking (4.20) filters; others send all of them. */
export function getRoutes(filter: RouteFilter = {}): Request {
  const writer = new Writer()
    .u8(familyFilter(filter.family))
    .u8(0)
    .u8(0)
    .u8(0)
    .u8(0)
    .u8(filter.protocol ?? 0)
    .u8(0)
    .u8(0)
    .u32(0);
  if (filter.table !== undefined) writer.attributeU32(RTA_TABLE, filter.table);
  if (filter.link !== undefined) writer.attributeU32(RTA_OIF, filter.link);
  return {
    type: RTM_GETROUTE,
    flags: NLM_F_DUMP,
    payload: writer.finish(),
    what: "Cannot list routes",
  };
}

/** Asks which route a packet to an address would take. `ENETUNREACH` when there is none. */
export const getRouteTo = (address: Ip): Request => ({
  type: RTM_GETROUTE,
  flags: 0,
  payload: new Writer()
    .u8(familyNumber(address))
    .u8(familyBits(familyOf(address)))
    .u8(0)
    .u8(0)
    .u8(0)
    .u8(0)
    .u8(0)
    .u8(0)
    .u32(0)
    .attribute(RTA_DST, ipToBytes(address))
    .finish(),
  what: `Cannot read the route to ${address}`,
});
