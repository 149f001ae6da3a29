import { familyOf, withLength } from "../../../core/address.ts";
import { PodnetError } from "../../../core/errors.ts";
import type { Ack } from "../../../linux/rtnetlink/ack.ts";
import { addAddress, deleteAddress } from "../../../linux/rtnetlink/address.ts";
import { type NewRoute, addRoute, replaceRoute } from "../../../linux/rtnetlink/route-requests.ts";
import type { Route } from "../../../linux/rtnetlink/route.ts";
import { type Change, hearMulticast } from "../../network/changes.ts";
import { given } from "../../protocol/fields.ts";
import {
  type AddressSetup,
  type InterfaceSetup,
  type RouteSetup,
  parseInterfaceSetup,
  parseRouteSetup,
} from "../../protocol/network-messages.ts";
import { writeInto } from "../files.ts";
import type { Links } from "./links.ts";
import { keepLoopback } from "./loopback.ts";
import { renameLink } from "./rename.ts";
import { type Reply, done } from "../reply.ts";
import { sys } from "../sys.ts";

const eexist = 17;

/**
 * hyperstart's commands about interfaces and routes. hyperstart acknowledges them without a check;
 * this agent validates them.
 */
export class Interfaces {
  readonly #links: Links;

  constructor(links: Links) {
    this.#links = links;
  }

  /** SETUPINTERFACE. */
  async setup(payload: Uint8Array): Promise<Reply> {
    await this.apply(parseInterfaceSetup(payload));
    return done;
  }

  /** SETUPROUTE. */
  async route(payload: Uint8Array): Promise<Reply> {
    await this.applyRoutes(parseRouteSetup(payload));
    return done;
  }

  /**
   * Addresses, name, MTU, up, in hyperstart's order. Only what is to change is sent, so that
   * neither link nor routes suffer: hyperstart's own requests take the link down, and every gateway
   * route with it.
   */
  async apply(setup: InterfaceSetup): Promise<void> {
    const { netlink } = this.#links;
    const link = await this.#links.named(setup.device);
    netlink.apply(setup.addresses.map((address) => addressChange(link.index, address)));
    if (setup.newName !== undefined) renameLink(netlink, link, setup.newName);
    if (setup.mtu !== undefined && setup.mtu !== link.mtu)
      netlink.change(link.index, { mtu: setup.mtu });
    if (!link.up) netlink.change(link.index, { up: true });
    if (setup.addresses.some(({ address }) => familyOf(address) === 6))
      netlink.apply([hearMulticast(link.index)]);
  }

  /**
   * Makes routes, many with one call to the kernel: hosts send hundreds at a time, and runv sends
   * all of them again with each change. A route that is there already is fine; another one to the
   * same destination is replaced.
   */
  async applyRoutes(setups: readonly RouteSetup[]): Promise<void> {
    const { netlink } = this.#links;
    const routes = lastOfEach(await this.#resolve(setups));
    const acks = netlink.attempt(routes.map(addRoute));
    if (acks.every(({ errno }) => errno === 0)) return;
    const there = new Set(netlink.routes().flatMap((route) => [keyOf(route), linklessKey(route)]));
    // A refused route may need one that is still to be replaced, to reach its gateway: it gets a
    // second chance in its place.
    const again = routes.filter((route, i) => {
      const { errno } = acks[i] as Ack;
      return errno !== 0 && !(errno === eexist && there.has(keyOf(route)));
    });
    netlink.apply(again.map((route) => ({ request: replaceRoute(route) })));
  }

  /** Routes with the indexes of their devices. Each device is looked up once. */
  async #resolve(setups: readonly RouteSetup[]): Promise<NewRoute[]> {
    const indexes = new Map<string, number>();
    const routes: NewRoute[] = [];
    for (const { destination, gateway, device } of setups) {
      const link =
        device === undefined
          ? undefined
          : (indexes.get(device) ?? (await this.#links.named(device)).index);
      if (device !== undefined && link !== undefined) indexes.set(device, link);
      routes.push({ destination, ...given("gateway", gateway), ...given("link", link) });
    }
    return routes;
  }

  /** lo, for STARTPOD. */
  loopbackUp(): void {
    this.#links.netlink.change("lo", { up: true });
    keepLoopback(this.#links, {});
  }

  /** DELETEINTERFACE: the PCI device is let go, as before it is unplugged. */
  async remove(payload: Uint8Array): Promise<Reply> {
    const link = await this.#links.named(parseInterfaceSetup(payload).device);
    // The device is the virtio one; above it is its PCI function.
    const path = `/sys/class/net/${link.name}/device/../remove`;
    if (sys.mode(path) === undefined)
      throw new PodnetError("UNSUPPORTED", `Interface "${link.name}" is not a PCI device`);
    writeInto(path, "1");
    return done;
  }
}

const addressChange = (index: number, { address, length, remove }: AddressSetup): Change => {
  const prefix = withLength(address, length);
  return remove
    ? { request: deleteAddress(index, prefix), fine: ["EADDRNOTAVAIL"] }
    : { request: addAddress(index, prefix, { noDad: true }), fine: ["EEXIST"] };
};

/** Of several routes to one destination the last one counts, as if each had been sent by itself. */
function lastOfEach(routes: readonly NewRoute[]): NewRoute[] {
  const byDestination = new Map<string, NewRoute>();
  for (const route of routes) {
    // Deleted first: it takes the place of the last one in the order, too.
    byDestination.delete(route.destination);
    byDestination.set(route.destination, route);
  }
  return Array.from(byDestination.values());
}

/**
 * Key that makes two routes equal for SETUPROUTE. A route without a link is equal to one on any
 * link.
 */
const keyOf = ({ destination, gateway, link }: NewRoute | Route): string =>
  `${destination} ${gateway ?? ""} ${link ?? ""}`;
const linklessKey = ({ destination, gateway }: Route): string => `${destination} ${gateway ?? ""} `;
