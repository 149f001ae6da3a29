import type { Cidr, Family, Ip, Mac } from "../../core/address.ts";
import { type PodnetError, toPodnetError } from "../../core/errors.ts";
import type { IfName } from "../../core/names.ts";
import type { Link } from "../../linux/rtnetlink/links/link.ts";
import type { RtnetlinkEvent } from "../../linux/rtnetlink/event.ts";
import { throwFailures } from "../bridge/apply.ts";
import type { OverlayRules } from "../bridge/overlay-rules.ts";
import type { Change } from "../model/change.ts";
import { mark } from "../model/desired.ts";
import { type Overlap, overlapsOf } from "../bridge/overlap.ts";
import { overlayMark, parseOwner } from "../model/ownership.ts";
import { SerialQueue } from "../kernel/queue.ts";
import { applyOverlay } from "./apply.ts";
import type { OverlayChange } from "./change.ts";
import {
  compareBasis,
  type ComparedSide,
  compareSide,
  compareTunnel,
  directOf,
} from "./compare.ts";
import { isDamage } from "./damage.ts";
import {
  type OverlayDelta,
  type OverlayDesired,
  type OverlayPeer,
  type OverlayShape,
  type OverlaySide,
  sideFamily,
} from "../model/overlay.ts";
import { type Followed, type FollowedSide, peersByKey, summary, updatePeers } from "./followed.ts";
import { type OverlayKernel, openOverlayKernel } from "./kernel.ts";
import { applyDelta } from "./delta.ts";
import { observeMarked, observeParent } from "./observe.ts";
import { planPeers } from "./plan.ts";
import { ruledOverlay, type SenderChange, senderChange } from "../model/overlay-senders.ts";
import { orphanRoutes } from "./sweep.ts";
import type { Tunnels } from "./udp/tunnels.ts";
import { planTunnel, planTunnelPeers } from "./udp/plan.ts";
import type { RefusedPeer } from "./wanted.ts";

export interface OverlayOutcome {
  readonly changes: readonly OverlayChange[];
  readonly rules: readonly Change[];
  /** The failures for single peers; the next look retries. */
  readonly failures: readonly PodnetError[];
  /** The peers without entries, and the reasons. */
  readonly refused: readonly RefusedPeer[];
  /** The MTU of the overlay's pods. */
  readonly mtu: number;
  /** The MACs by which other hosts reach this one. */
  readonly macs: ReadonlyMap<Family, Mac>;
}

/**
 * Overlays on this host: the one way their devices, neighbours, forwarding entries, routes and
 * rules are changed.
 */
export class Overlays implements AsyncDisposable {
  readonly #kernel: OverlayKernel;
  readonly #rules: OverlayRules;
  /** Apart from the other changes of the host's network: four thousand peers hold up no pod. */
  readonly #queue = new SerialQueue();
  readonly #followed = new Map<string, Followed>();
  /**
   * The latest desired state of each overlay: routes outside of all their networks are leftovers.
   */
  readonly #known = new Map<string, OverlayShape>();

  /**
   * Works in the calling thread's network namespace, unless another kernel is given. Changes
   * nothing by itself.
   */
  constructor(rules: OverlayRules, kernel: OverlayKernel = openOverlayKernel()) {
    this.#kernel = kernel;
    this.#rules = rules;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#queue.idle();
    await this.#kernel.tunnels[Symbol.asyncDispose]();
    this.#kernel.netlink.close();
  }

  /**
   * The tunnels through which podnetd itself forwards packets: their counters, and the event of one
   * that breaks.
   */
  get tunnels(): Tunnels {
    return this.#kernel.tunnels;
  }

  /** Whether an event with this port id results from a request of this object. */
  hasAsked(portId: number): boolean {
    return this.#kernel.netlink.hasAsked(portId);
  }

  /**
   * Whether an event shows that peers' entries, or a device's address, differ from what was made.
   * Not called for links.
   */
  isDamaged(event: RtnetlinkEvent): boolean {
    return [...this.#followed.values()].some(({ sides }) =>
      [...sides.values()].some(({ wanted }) => isDamage(event, wanted)),
    );
  }

  /**
   * The MAC of a VXLAN device of this name that is not podnet's: flanneld's own, by which other
   * hosts know this one.
   */
  async foreignMac(device: IfName): Promise<Mac | undefined> {
    const link = await this.#kernel.netlink.link(device);
    return link?.kind === "vxlan" && parseOwner(link.alias) === undefined ? link.mac : undefined;
  }

  /**
   * The objects of the host that overlap an overlay's networks, except its own bridge and device,
   * flannel's leftovers, and our routes. Throws `NETLINK_FAILED`.
   */
  overlaps(
    name: string,
    networks: readonly Cidr[],
    bridge: IfName | undefined,
  ): Promise<readonly Overlap[]> {
    return overlapsOf(this.#kernel.netlink, networks, {
      link: (link) =>
        link.name === bridge || link.alias === overlayMark(name) || link.name.startsWith("flannel"),
      route: ({ protocol }) => protocol === mark.routeProtocol,
    });
  }

  /**
   * Addresses of these subnets on links other than podnet's, except the subnet's bridge and
   * flannel's devices. Routes are not looked at. Throws `NETLINK_FAILED`.
   */
  foreignAddresses(
    subnets: readonly Cidr[],
    bridge: IfName | undefined,
  ): Promise<readonly Overlap[]> {
    const { netlink } = this.#kernel;
    const looked = {
      links: () => netlink.links(),
      addresses: () => netlink.addresses(),
      routes: () => Promise.resolve([]),
    };
    const link = (one: Link): boolean =>
      one.name === bridge || parseOwner(one.alias) !== undefined || one.name.startsWith("flannel");
    return overlapsOf(looked, subnets, { link });
  }

  /**
   * Inspects everything that the overlay has on this host and repairs it. A second call changes
   * nothing. A failure of one family or one peer holds up no other.
   *
   * Throws `OVERLAY_CONFLICT`, `NETLINK_FAILED`, `SYSCALL_FAILED`, `CANCELLED`, and the errors of
   * rules.
   */
  ensure(desired: OverlayDesired, signal: AbortSignal): Promise<OverlayOutcome> {
    return this.#queue.run(() => this.#ensure(desired, signal), signal);
  }

  /**
   * Updates an overlay's peers from a delta and the last applied state, without a look:
   * milliseconds, for any number of peers. Undefined if a look is needed (`ensure`): the overlay
   * was not fully applied, the delta does not fit, or the kernel's state turns out to differ.
   * Throws as `ensure` does.
   */
  follow(
    name: string,
    delta: OverlayDelta,
    signal: AbortSignal,
  ): Promise<OverlayOutcome | undefined> {
    return this.#queue.run(() => this.#follow(name, delta, signal), signal);
  }

  /** The changes that `ensure` would make now. Throws as it would. */
  diff(
    desired: OverlayDesired,
    signal: AbortSignal,
  ): Promise<{ readonly changes: readonly OverlayChange[]; readonly rules: readonly Change[] }> {
    return this.#queue.run(async () => {
      const parent = await observeParent(this.#kernel.netlink, desired.parent);
      const changes = await compareBasis(this.#kernel, desired);
      changes.push(...(await this.#leftRoutes(desired)));
      for (const side of desired.sides)
        changes.push(...(await compareSide(this.#kernel, desired, side, parent)).changes);
      return { changes, rules: await this.#rules.diff(ruledOverlay(desired), signal) };
    }, signal);
  }

  /**
   * Removes everything of overlays that are not among these: devices and rules by their marks,
   * routes by our protocol number. Absence is success. Without any known overlay, nothing of
   * overlays is left.
   */
  sweep(known: readonly OverlayShape[], signal: AbortSignal): Promise<readonly OverlayChange[]> {
    return this.#queue.run(async () => {
      const names = new Set(known.map(({ name }) => name));
      this.#known.clear();
      for (const desired of known) this.#known.set(desired.name, desired);
      for (const name of this.#followed.keys()) if (!names.has(name)) this.#followed.delete(name);
      const marks = new Set([...names].map(overlayMark));
      const { netlink, tunnels } = this.#kernel;
      const routes = await orphanRoutes(netlink, known);
      const devices = (await observeMarked(netlink)).filter(({ alias }) => !marks.has(alias));
      const changes = [
        ...devices.map(({ device }): OverlayChange => ({ kind: "delete-device", device })),
        ...[...tunnels.all]
          .filter(([name]) => !names.has(name))
          .flatMap(([name, tunnel]) => planTunnel(name, undefined, tunnel, true)),
        ...routes,
      ];
      const applied = await applyOverlay(changes, this.#kernel, signal);
      const failures = [...applied.failures];
      try {
        await this.#rules.remove((name) => !names.has(name), signal);
      } catch (error) {
        failures.push(toPodnetError(error));
      }
      throwFailures(failures);
      return applied.done;
    }, signal);
  }

  async #ensure(desired: OverlayDesired, signal: AbortSignal): Promise<OverlayOutcome> {
    this.#followed.delete(desired.name);
    const parent = await observeParent(this.#kernel.netlink, desired.parent);
    const changes: OverlayChange[] = [];
    const failures: PodnetError[] = [];
    const broken: PodnetError[] = [];
    const apply = async (planned: readonly OverlayChange[]): Promise<void> => {
      const applied = await applyOverlay(planned, this.#kernel, signal);
      changes.push(...applied.done);
      failures.push(...applied.failures);
    };
    this.#known.set(desired.name, desired);
    await apply(await compareBasis(this.#kernel, desired));
    await apply(await this.#leftRoutes(desired));
    let rules: readonly Change[] = [];
    const writeRules = async (): Promise<void> => {
      try {
        rules = await this.#rules.ensure(ruledOverlay(desired), signal);
      } catch (error) {
        broken.push(toPodnetError(error));
      }
    };
    const compared = new Map<OverlaySide, ComparedSide>();
    const look = async (): Promise<void> => {
      for (const side of desired.sides)
        try {
          compared.set(side, await compareSide(this.#kernel, desired, side, parent));
        } catch (error) {
          broken.push(toPodnetError(error));
        }
    };
    // Rules come before peers, so that the first packet to a peer is filtered. The look comes right
    // before the changes: podnetd notices late what other programs remove between it and the end of
    // this function.
    await writeRules();
    await look();
    const sides = new Map<Family, FollowedSide>();
    let followable = true;
    for (const [side, seen] of compared) {
      try {
        await apply(seen.changes);
        const device = seen.wanted.device?.device;
        const deviceMac =
          device === undefined ? undefined : (await this.#kernel.netlink.link(device))?.mac;
        const peers = peersByKey(side.peers);
        followable &&= peers !== undefined;
        sides.set(sideFamily(side), {
          ...seen,
          side,
          peers: peers ?? new Map(),
          deviceMac,
          parentMtu: parent.mtu,
        });
      } catch (error) {
        broken.push(toPodnetError(error));
      }
    }
    throwFailures(broken);
    const followed = { shape: desired, sides };
    if (followable && failures.length === 0) this.#followed.set(desired.name, followed);
    return { ...summary(followed), changes, rules, failures };
  }

  /** The changes that remove routes of former networks, with this overlay as given. */
  #leftRoutes(desired: OverlayShape): Promise<readonly OverlayChange[]> {
    const known = new Map(this.#known).set(desired.name, desired);
    return orphanRoutes(this.#kernel.netlink, [...known.values()]);
  }

  async #follow(
    name: string,
    delta: OverlayDelta,
    signal: AbortSignal,
  ): Promise<OverlayOutcome | undefined> {
    const before = this.#followed.get(name);
    if (before === undefined) return undefined;
    const { shape } = before;
    if ((await compareTunnel(this.#kernel, shape)).length > 0) return undefined;
    this.#followed.delete(name);
    const planned: OverlayChange[] = [];
    const senders: SenderChange[] = [];
    const sides = new Map(before.sides);
    for (const [family, last] of before.sides) {
      const peers = delta.get(family);
      if (peers === undefined) continue;
      if (!updatePeers(last.peers, peers)) return undefined;
      const { side } = last;
      const asked = peers.added.map(({ publicIp }) => publicIp).filter((ip) => !last.asked.has(ip));
      for (const ip of await directOf(this.#kernel, shape, asked)) last.direct.add(ip);
      for (const ip of asked) last.asked.add(ip);
      const isDirect = (ip: Ip): boolean => last.direct.has(ip);
      const known = { ...last, isDirect, tunnelDevice: last.wanted.device?.device };
      const all = (): readonly OverlayPeer[] => [...last.peers.values()];
      const { from, to, wanted } = applyDelta(shape, side, known, last.wanted, peers, all);
      planned.push(...planTunnelPeers(name, to.tunnel, from.tunnel));
      planned.push(...planPeers(to, { ...from, strays: [] }));
      const change = senderChange(name, side, {
        from: from.senders,
        to: to.senders,
        all: wanted.senders,
      });
      if (change !== undefined) senders.push(change);
      sides.set(family, { ...last, wanted });
    }
    const rules: Change[] = [];
    for (const change of senders) rules.push(...(await this.#rules.follow(change, signal)));
    const { done, failures } = await applyOverlay(planned, this.#kernel, signal);
    // Then the kernel is not as it was thought to be.
    if (failures.length > 0) return undefined;
    const followed = { shape, sides };
    this.#followed.set(name, followed);
    return { ...summary(followed), changes: done, rules, failures };
  }
}
