import { type LinkAddress, parseAddress } from "./address.ts";
import {
  RTM_DELADDR,
  RTM_DELLINK,
  RTM_DELNEIGH,
  RTM_DELQDISC,
  RTM_DELROUTE,
  RTM_DELTFILTER,
  RTM_NEWADDR,
  RTM_NEWLINK,
  RTM_NEWNEIGH,
  RTM_NEWQDISC,
  RTM_NEWROUTE,
  RTM_NEWTFILTER,
} from "./constants.ts";
import { type FdbEntry, parseFdb } from "./fdb.ts";
import { isPortMessage, type Link, parseLink } from "./links/link.ts";
import type { NetlinkMessage } from "./message.ts";
import { type Neighbour, parseNeighbour } from "./neighbour.ts";
import { parseRoute, type Route } from "./route.ts";
import { readTcmsg } from "./traffic-control.ts";

/** Something the kernel reports unasked. `gone` is the state it had last. */
export type RtnetlinkEvent =
  | { readonly kind: "link"; readonly gone: boolean; readonly link: Link }
  /** A link became, changed or ceased to be a port; the link itself lives on. */
  | { readonly kind: "port"; readonly gone: boolean; readonly link: Link }
  | { readonly kind: "address"; readonly gone: boolean; readonly address: LinkAddress }
  | { readonly kind: "route"; readonly gone: boolean; readonly route: Route }
  | { readonly kind: "neighbour"; readonly gone: boolean; readonly neighbour: Neighbour }
  /** A queue or a filter of the link with this index came, changed or went. */
  | { readonly kind: "traffic-control"; readonly index: number }
  | { readonly kind: "fdb"; readonly gone: boolean; readonly entry: FdbEntry };

/** Reads an event; undefined for messages of other kinds and families. Throws `NETLINK_FAILED`. */
export function parseEvent(message: NetlinkMessage): RtnetlinkEvent | undefined {
  const { type, payload } = message;
  switch (type) {
    case RTM_NEWLINK:
    case RTM_DELLINK: {
      const kind = isPortMessage(payload) ? "port" : "link";
      return { kind, gone: type === RTM_DELLINK, link: parseLink(payload) };
    }
    case RTM_NEWADDR:
    case RTM_DELADDR: {
      const address = parseAddress(payload);
      return address && { kind: "address", gone: type === RTM_DELADDR, address };
    }
    case RTM_NEWROUTE:
    case RTM_DELROUTE: {
      const route = parseRoute(payload);
      return route && { kind: "route", gone: type === RTM_DELROUTE, route };
    }
    case RTM_NEWNEIGH:
    case RTM_DELNEIGH: {
      const gone = type === RTM_DELNEIGH;
      const entry = parseFdb(payload);
      if (entry !== undefined) return { kind: "fdb", gone, entry };
      const neighbour = parseNeighbour(payload);
      return neighbour && { kind: "neighbour", gone, neighbour };
    }
    case RTM_NEWQDISC:
    case RTM_DELQDISC:
    case RTM_NEWTFILTER:
    case RTM_DELTFILTER:
      return { kind: "traffic-control", index: readTcmsg(payload, "a queue").header.index };
    default:
      return undefined;
  }
}
