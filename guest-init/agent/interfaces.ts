import { familyOf, withLength } from "../../core/address.ts";
import { PodnetError } from "../../core/errors.ts";
import { addAddress, deleteAddress } from "../../linux/rtnetlink/address.ts";
import { addRoute, replaceRoute } from "../../linux/rtnetlink/route-requests.ts";
import type { Route } from "../../linux/rtnetlink/route.ts";
import {
  type InterfaceSetup,
  type RouteSetup,
  parseInterfaceSetup,
  parseRouteSetup,
} from "../protocol/network-messages.ts";
import { writeInto } from "./files.ts";
import { hearMulticast } from "./ipv6.ts";
import type { Links } from "./links.ts";
import { keepLoopback } from "./loopback.ts";
import { renameLink } from "./rename.ts";
import { type Reply, done } from "./reply.ts";
import { sys } from "./sys.ts";

/** hyperstart's commands about interfaces and routes. What it acknowledges blindly is checked here. */
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
    for (const route of parseRouteSetup(payload)) await this.applyRoute(route);
    return done;
  }

  /**
   * Addresses, name, MTU, up, in hyperstart's order. Only what is to change is sent, so that neither link nor
   * routes suffer: hyperstart's own requests take the link down, and every gateway route with it.
   */
  async apply(setup: InterfaceSetup): Promise<void> {
    const { netlink } = this.#links;
    const link = await this.#links.named(setup.device);
    for (const { address, length, remove } of setup.addresses) {
      const prefix = withLength(address, length);
      if (remove) netlink.tolerate(deleteAddress(link.index, prefix), "EADDRNOTAVAIL");
      else netlink.tolerate(addAddress(link.index, prefix, { noDad: true }), "EEXIST");
    }
    if (setup.newName !== undefined) renameLink(netlink, link, setup.newName);
    if (setup.mtu !== undefined && setup.mtu !== link.mtu)
      netlink.change(link.index, { mtu: setup.mtu });
    if (!link.up) netlink.change(link.index, { up: true });
    if (setup.addresses.some(({ address }) => familyOf(address) === 6))
      netlink.apply([hearMulticast(link.index)]);
  }

  async applyRoute(setup: RouteSetup): Promise<void> {
    const { netlink } = this.#links;
    const device =
      setup.device === undefined ? undefined : (await this.#links.named(setup.device)).index;
    const route = {
      destination: setup.destination,
      ...(setup.gateway === undefined ? {} : { gateway: setup.gateway }),
      ...(device === undefined ? {} : { link: device }),
    };
    if (!netlink.tolerate(addRoute(route), "EEXIST")) return;
    // runv sends all routes again with each change. The same one is fine; another one to the same place is replaced.
    const same = (there: Route): boolean =>
      there.destination === setup.destination &&
      there.gateway === setup.gateway &&
      (device === undefined || there.link === device);
    if (!netlink.routes().some(same)) netlink.request(replaceRoute(route));
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
