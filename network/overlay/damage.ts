import { assertNever } from "../../core/brand.ts";
import type { RtnetlinkEvent } from "../../linux/rtnetlink/event.ts";
import { mark } from "../model/desired.ts";
import type { WantedSide } from "./wanted.ts";

const tableMain = 254;

/**
 * Whether an event shows a deviation of an address family from the wanted state. Events of links
 * cannot be judged here. Pure.
 */
export function isDamage(
  event: RtnetlinkEvent,
  { device, neighbours, fdb, routes }: WantedSide,
): boolean {
  switch (event.kind) {
    case "link":
    case "port":
      return false;
    case "address":
      return event.gone && device?.address === event.address.prefix;
    case "route": {
      const { destination, gateway, protocol, table } = event.route;
      const wanted = table === tableMain ? routes.get(destination) : undefined;
      if (wanted === undefined) return false;
      return event.gone || protocol !== mark.routeProtocol || gateway !== wanted.gateway;
    }
    case "neighbour": {
      const { address, mac } = event.neighbour;
      const wanted = neighbours.get(address);
      return wanted !== undefined && (event.gone || mac !== wanted);
    }
    case "fdb": {
      const { mac, remote } = event.entry;
      const wanted = fdb.get(mac);
      return wanted !== undefined && (event.gone || remote !== wanted);
    }
    case "traffic-control":
      return false;
    default:
      return assertNever(event);
  }
}
