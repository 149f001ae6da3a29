import { setImmediate as nextTurn } from "node:timers/promises";
import type { Ip, IpPrefix } from "../../core/address.ts";
import { isPodnetError, PodnetError } from "../../core/errors.ts";
import { type Answer, RtnetlinkExchange } from "./rtnetlink-exchange.ts";
import { ackError } from "../rtnetlink/ack.ts";
import * as address from "../rtnetlink/address.ts";
import type { BridgePortSettings } from "../rtnetlink/links/bridge-port.ts";
import * as vlans from "../rtnetlink/links/bridge-vlan.ts";
import { errnoName } from "../rtnetlink/errno.ts";
import * as fdb from "../rtnetlink/fdb.ts";
import { type Link, parseGroup, parseLink } from "../rtnetlink/links/link.ts";
import type { BridgeSettings, VxlanSettings } from "../rtnetlink/links/link-kind.ts";
import * as link from "../rtnetlink/links/link-requests.ts";
import type { Request } from "../rtnetlink/message.ts";
import * as neighbour from "../rtnetlink/neighbour.ts";
import { parseRoute, type Route } from "../rtnetlink/route.ts";
import * as route from "../rtnetlink/route-requests.ts";

export interface LinksFilter extends link.LinkFilter {
  readonly group?: number;
}

/** A new link and the alias it gets right after its birth. */
export type AddLink = link.NewLink & { readonly alias?: string };

// A send is bounded by the socket's buffer (208 KiB), an answer takes some 800 bytes of the other
// one.
const batchSize = 256;
// A dump of 1,000 links takes 7 ms; only constant changes of links could delay it this long.
const dumpTimeoutMs = 5000;

/**
 * The kernel's network configuration, in the namespace the calling thread was in when it was
 * opened.
 *
 * Every method throws `NETLINK_FAILED` with the errno's name in `details.errno` and the kernel's
 * own words, if any, in `details.kernel`. An object that exists already is an error of `add…`; an
 * object that is absent already is a success of `delete…` (which returns whether there was
 * something). Calls may overlap; answers are matched by sequence number. Requests that take the
 * kernel milliseconds (deleting, leaving a bridge) run on another thread, one after the other, and
 * later calls may overtake them: await a call before another one depends on it.
 */
export class Rtnetlink implements Disposable {
  readonly #fast: RtnetlinkExchange;
  /** For what takes the kernel long, and for what is asked meanwhile. */
  readonly #others:
    | { readonly slow: RtnetlinkExchange; readonly alongside: RtnetlinkExchange }
    | undefined;
  readonly #sockets: DisposableStack;

  constructor(alone = false) {
    using opened = new DisposableStack();
    const exchange = (): RtnetlinkExchange => opened.use(new RtnetlinkExchange());
    this.#fast = exchange();
    this.#others = alone ? undefined : { slow: exchange(), alongside: exchange() };
    // From here on close() ends them; had one failed to open, the others would be closed by now.
    this.#sockets = opened.move();
  }

  static open(): Rtnetlink {
    return new Rtnetlink();
  }

  /**
   * Opens with a third of the sockets, where nothing is asked that takes the kernel long: it
   * would hold up this thread.
   */
  static openSmall(): Rtnetlink {
    return new Rtnetlink(true);
  }

  /** Closes the sockets; slow requests under way are finished first. A second call does nothing. */
  close(): void {
    this.#sockets.dispose();
  }

  [Symbol.dispose](): void {
    this.close();
  }

  /** Whether an event that names this port id is of what was asked here. */
  hasAsked(portId: number): boolean {
    const { slow, alongside } = this.#others ?? {};
    return portId !== 0 && [this.#fast, slow, alongside].some((each) => each?.port === portId);
  }

  // Links

  async links(filter: LinksFilter = {}): Promise<readonly Link[]> {
    const { group, ...kernelFilter } = filter;
    // (The kernel reports all groups. Of links in other groups only the group is parsed.)
    const parse = (payload: Uint8Array): Link | undefined =>
      group === undefined || parseGroup(payload) === group ? parseLink(payload) : undefined;
    const links = await this.#dump(link.getLinks(kernelFilter), parse);
    // Filtered again: kernels ignore a kind they do not know, and those before 4.20 some filters.
    return links.filter(
      (found) =>
        (group === undefined || found.group === group) &&
        (filter.kind === undefined || found.kind === filter.kind) &&
        (filter.master === undefined || found.master === filter.master),
    );
  }

  /** One link, by index, name or alternative name; undefined when there is none. */
  async link(which: link.LinkRef): Promise<Link | undefined> {
    return (await this.linksNamed([which]))[0];
  }

  /** Several links with one exchange, in the order asked. */
  async linksNamed(which: readonly link.LinkRef[]): Promise<readonly (Link | undefined)[]> {
    const requests = which.map(link.getLink);
    const answers = await this.#exchange(requests);
    return requests.map((request, i) => linkOf(request, answers[i]));
  }

  /** Makes a bridge and returns its state. Group and MTU are set from birth, the alias follows. */
  addBridge(options: AddLink & { readonly bridge?: BridgeSettings }): Promise<Link> {
    return this.#addLink(link.newBridge(options), options);
  }

  /**
   * Makes a veth pair and gives back the near end; `peer.netnsFd` lets the far end be born
   * elsewhere.
   */
  addVeth(options: AddLink & { readonly peer: link.VethPeer }): Promise<Link> {
    return this.#addLink(link.newVeth(options), options);
  }

  addVxlan(options: AddLink & { readonly vxlan: VxlanSettings }): Promise<Link> {
    return this.#addLink(link.newVxlan(options), options);
  }

  addIfb(options: AddLink): Promise<Link> {
    return this.#addLink(link.newIfb(options), options);
  }

  addDummy(options: AddLink): Promise<Link> {
    return this.#addLink(link.newDummy(options), options);
  }

  /** Changes a link; several changes are not atomic, the kernel stops at the first that fails. */
  changeLink(which: link.LinkRef, change: link.LinkChange): Promise<void> {
    return this.run(link.changeLink(which, change));
  }

  /** Changes settings of a bridge. */
  changeBridge(which: link.LinkRef, settings: BridgeSettings): Promise<void> {
    return this.run(link.changeBridge(which, settings));
  }

  /** Changes settings a link has as a port of its bridge. */
  changeBridgePort(which: link.LinkRef, settings: BridgePortSettings): Promise<void> {
    return this.run(link.changeBridgePort(which, settings));
  }

  /** The VLANs a port is a member of. */
  async portVlans(index: number): Promise<readonly vlans.PortVlan[]> {
    const found = await this.#dump(vlans.getPortVlans(index), (payload) =>
      vlans.parsePortVlans(payload, index),
    );
    return found.flat();
  }

  /** Makes a port an untagged member of one VLAN and of no other. */
  async setPortVlan(index: number, vlan: number): Promise<void> {
    await this.run(vlans.addPortVlan(index, vlan));
    for (const other of await this.portVlans(index))
      for (let each = other.vlan; each <= other.last; each++)
        if (each !== vlan) await this.run(vlans.deletePortVlan(index, each));
  }

  /** Changes settings of a VXLAN that can be changed while it is there. */
  changeVxlan(which: link.LinkRef, settings: VxlanSettings): Promise<void> {
    return this.run(link.changeVxlan(which, settings));
  }

  /** Takes a link off its bridge; false when there is no such link. */
  leaveBridge(which: link.LinkRef): Promise<boolean> {
    return this.#remove(link.changeLink(which, { master: 0 }));
  }

  addAltName(which: link.LinkRef, name: string): Promise<void> {
    return this.run(link.addAltName(which, name));
  }

  deleteAltName(which: link.LinkRef, name: string): Promise<boolean> {
    return this.#remove(link.deleteAltName(which, name));
  }

  /**
   * Moves links into a group, all with one message; links that have gone meanwhile do not block the
   * others.
   */
  async setGroup(indexes: readonly number[], group: number): Promise<void> {
    await this.tryBatch(indexes.map((index) => link.changeLink(index, { group })));
  }

  deleteLink(which: link.LinkRef): Promise<boolean> {
    return this.#remove(link.deleteLink(which));
  }

  /** Ends every link of a group in one go: 300 cost the kernel what two cost one by one. */
  deleteGroup(group: number): Promise<boolean> {
    return this.#remove(link.deleteGroup(group));
  }

  // Addresses

  addresses(filter: address.AddressFilter = {}): Promise<readonly address.LinkAddress[]> {
    return this.#dump(address.getAddresses(filter), (payload) => {
      const found = address.parseAddress(payload);
      return filter.index === undefined || found?.index === filter.index ? found : undefined;
    });
  }

  addAddress(index: number, prefix: IpPrefix, options?: address.AddressOptions): Promise<void> {
    return this.run(address.addAddress(index, prefix, options));
  }

  deleteAddress(index: number, prefix: IpPrefix): Promise<boolean> {
    return this.#remove(address.deleteAddress(index, prefix));
  }

  // Routes

  /** Routes of every table unless filtered; `table: 254` is main. */
  async routes(filter: route.RouteFilter = {}): Promise<readonly Route[]> {
    const matches = (found: Route): boolean =>
      (filter.table === undefined || found.table === filter.table) &&
      (filter.protocol === undefined || found.protocol === filter.protocol) &&
      (filter.link === undefined || linksOf(found).includes(filter.link));
    try {
      return await this.#dump(route.getRoutes(filter), (payload) => {
        const found = parseRoute(payload);
        return found !== undefined && matches(found) ? found : undefined;
      });
    } catch (error) {
      // "FIB table does not exist": a table is there from its first route on.
      if (filter.table !== undefined && hasErrno(error, ["ENOENT"])) return [];
      throw error;
    }
  }

  /**
   * The route that packets to each address would take now, in the order of the addresses; undefined
   * where there is none.
   */
  async routesTo(addresses: readonly Ip[]): Promise<readonly (Route | undefined)[]> {
    const routes: (Route | undefined)[] = [];
    for (let start = 0; start < addresses.length; start += batchSize) {
      const requests = addresses.slice(start, start + batchSize).map(route.getRouteTo);
      for (const { messages } of await this.#exchange(requests)) {
        const [found] = messages;
        routes.push(found === undefined ? undefined : parseRoute(found.payload));
      }
    }
    return routes;
  }

  addRoute(wanted: route.NewRoute): Promise<void> {
    return this.run(route.addRoute(wanted));
  }

  replaceRoute(wanted: route.NewRoute): Promise<void> {
    return this.run(route.replaceRoute(wanted));
  }

  deleteRoute(unwanted: route.NewRoute): Promise<boolean> {
    return this.#remove(route.deleteRoute(unwanted));
  }

  // Neighbours and forwarding entries

  neighbours(filter: neighbour.NeighbourFilter = {}): Promise<readonly neighbour.Neighbour[]> {
    return this.#dump(neighbour.getNeighbours(filter), (payload) => {
      const found = neighbour.parseNeighbour(payload);
      return filter.index === undefined || found?.index === filter.index ? found : undefined;
    });
  }

  replaceNeighbour(wanted: neighbour.NewNeighbour): Promise<void> {
    return this.run(neighbour.replaceNeighbour(wanted));
  }

  deleteNeighbour(index: number, ip: Ip): Promise<boolean> {
    return this.#remove(neighbour.deleteNeighbour(index, ip));
  }

  fdb(filter: fdb.FdbFilter = {}): Promise<readonly fdb.FdbEntry[]> {
    return this.#dump(fdb.getFdb(filter), fdb.parseFdb);
  }

  addFdb(entry: fdb.NewFdbEntry, mode?: "add" | "replace" | "append"): Promise<void> {
    return this.run(fdb.addFdb(entry, mode));
  }

  deleteFdb(entry: fdb.NewFdbEntry): Promise<boolean> {
    return this.#remove(fdb.deleteFdb(entry));
  }

  // Requests of any kind

  /**
   * The answers to a request, parsed by `parse`; undefined ones are left out. A list that changed
   * meanwhile is read again.
   */
  answers<T>(
    request: Request,
    parse: (payload: Uint8Array) => T | undefined,
  ): Promise<readonly T[]> {
    return this.#dump(request, parse);
  }

  /** The single answer to a request; undefined when the object does not exist. */
  async answer<T>(request: Request, parse: (payload: Uint8Array) => T): Promise<T | undefined> {
    const [answer] = await this.#exchange([request]);
    if (isAbsence(answer)) return undefined;
    throwIfRefused(request, answer);
    const [message] = answer?.messages ?? [];
    return message === undefined ? undefined : parse(message.payload);
  }

  /** Carries out one request that is answered by nothing but success or failure. */
  async run(request: Request): Promise<void> {
    const [answer] = await this.#exchange([request]);
    throwIfRefused(request, answer);
  }

  /**
   * Carries out many requests, up to 256 per system call, in order, whatever becomes of each: the
   * outcome of a request is undefined or its error. Do not put a request here that must not happen
   * when an earlier one fails.
   */
  async tryBatch(requests: readonly Request[]): Promise<readonly (PodnetError | undefined)[]> {
    const outcomes: (PodnetError | undefined)[] = [];
    for (let start = 0; start < requests.length; start += batchSize) {
      const part = requests.slice(start, start + batchSize);
      const answers = await this.#exchange(part);
      part.forEach((request, i) => outcomes.push(refusal(request, answers[i])));
    }
    return outcomes;
  }

  /** Throws the first error when all have been tried; `details.failed` counts them. */
  async batch(requests: readonly Request[]): Promise<void> {
    const errors = (await this.tryBatch(requests)).filter((outcome) => outcome !== undefined);
    const [first] = errors;
    if (first !== undefined) throw first.with({ details: { failed: errors.length } });
  }

  async #exchange(requests: readonly Request[]): Promise<readonly Answer[]> {
    // (A datagram with nothing in it is refused: ENODATA.)
    if (requests.length === 0) return [];
    if (this.#others === undefined) return this.#fast.exchange(requests);
    const { slow, alongside } = this.#others;
    if (requests.some((request) => request.slow === true)) return slow.exchangeSlowly(requests);
    // Deleting a group of a thousand links holds the kernel's one lock (rtnl) for 180 ms: this
    // thread must not wait.
    if (slow.busy || alongside.busy) return alongside.exchangeSlowly(requests);
    return this.#fast.exchange(requests);
  }

  async #addLink(request: Request, options: AddLink): Promise<Link> {
    await this.run(request);
    // Not in the same batch: had the first failed, the second would mark a foreign link.
    const { name, alias } = options;
    const mark = alias === undefined ? [] : [link.changeLink(name, { alias })];
    const look = link.getLink(name);
    const answers = await this.#exchange([...mark, look]);
    mark.forEach((request, i) => throwIfRefused(request, answers[i]));
    const made = linkOf(look, answers[mark.length]);
    if (made !== undefined) return made;
    throw new PodnetError("NETLINK_FAILED", `Link "${options.name}" was made and is gone again`, {
      details: { errno: "ENODEV" },
    });
  }

  async #remove(request: Request): Promise<boolean> {
    const [answer] = await this.#exchange([request]);
    // (As a rule what is to go is not there: no error is made of that.)
    if (absent.includes(errnoName(answer?.ack.errno ?? 0))) return false;
    throwIfRefused(request, answer);
    return true;
  }

  async #dump<T>(
    request: Request,
    parse: (payload: Uint8Array) => T | undefined,
  ): Promise<readonly T[]> {
    const deadline = performance.now() + dumpTimeoutMs;
    do {
      const [answer] = await this.#exchange([request]);
      throwIfRefused(request, answer);
      if (answer !== undefined && !answer.interrupted) {
        return answer.messages
          .map(({ payload }) => parse(payload))
          .filter((found) => found !== undefined);
      }
      await nextTurn();
    } while (performance.now() < deadline);
    throw new PodnetError(
      "NETLINK_FAILED",
      `${request.what}: they kept changing for ${dumpTimeoutMs} ms`,
      { details: { errno: "EINTR" } },
    );
  }
}

/** The requested link; undefined when it does not exist. */
function linkOf(request: Request, answer: Answer | undefined): Link | undefined {
  if (answer !== undefined && errnoName(answer.ack.errno) === "ENODEV") return undefined;
  throwIfRefused(request, answer);
  const [message] = answer?.messages ?? [];
  return message === undefined ? undefined : parseLink(message.payload);
}

/**
 * How the kernel says that what should be deleted is not there: link, address, route, neighbour or
 * FDB entry.
 */
/** The links that a route leaves by: several when it has several next hops. */
const linksOf = ({ link: index, nextHops }: Route): readonly (number | undefined)[] =>
  nextHops?.map((hop) => hop.link) ?? [index];

const absent = ["ENODEV", "EADDRNOTAVAIL", "ESRCH", "ENOENT"];

/** Absence of queues: a link without one of its own has an invalid one. */
const isAbsence = (answer: Answer | undefined): boolean =>
  [...absent, "EINVAL"].includes(errnoName(answer?.ack.errno ?? 0));

function hasErrno(error: unknown, names: readonly string[]): boolean {
  return isPodnetError(error, "NETLINK_FAILED") && names.includes(String(error.details["errno"]));
}

function refusal(request: Request, answer: Answer | undefined): PodnetError | undefined {
  const errno = answer?.ack.errno ?? 0;
  return answer === undefined || errno === 0 ? undefined : ackError(request.what, answer.ack);
}

function throwIfRefused(request: Request, answer: Answer | undefined): void {
  const error = refusal(request, answer);
  if (error !== undefined) throw error;
}
