import { PodnetError } from "../../core/errors.ts";
import type { Cidr } from "../../core/address.ts";
import { guard } from "../../core/guard.ts";
import type { OverlayDesired, OverlayShape } from "../../network/model/overlay.ts";
import type { OverlayConfig } from "../../overlay/flannel/config.ts";
import { subnetsText } from "../../overlay/flannel/key.ts";
import type { Prefix } from "../../overlay/flannel/prefix.ts";
import type { OwnerId } from "../../overlay/owner.ts";
import type { HostLeaseState } from "../../overlay/host-lease.ts";
import type { LeasePhase } from "../../overlay/lease-status.ts";
import type { EntryChange, Registry } from "../../overlay/registry.ts";
import { subnetsRecord } from "./store.ts";
import { cidrsOf, makeDesired, makeShape, subnetEnvOf } from "./kernel/make-desired.ts";
import { LeaveWaiters } from "./lease/leave-waiters.ts";
import { refuseOverlap } from "./lease/refuse-overlap.ts";
import type { OverlayPeerView, OverlayView } from "./view.ts";
import type { OverlayHostOptions } from "./overlay-host-options.ts";
import { closeParts, openParts, type OverlayParts } from "./overlay-parts.ts";

/**
 * This host's part of one overlay: its lease, the network that follows the lease, and the kernel's
 * part.
 */
export class OverlayHost implements AsyncDisposable {
  readonly name: string;
  readonly #options: OverlayHostOptions;
  readonly #parts: OverlayParts;
  readonly #notified = Promise.withResolvers<void>();
  readonly #leaveWaiters = new LeaveWaiters();
  #config: OverlayConfig | undefined;
  #started = false;
  /** The state of the lease that was last applied. */
  #applied = "";

  constructor(options: OverlayHostOptions) {
    this.#options = options;
    this.name = options.name;
    this.#parts = openParts(options, {
      notified: () => this.#notified.resolve(),
      made: (shape) => this.#made(shape),
      hostKnown: (host) => {
        this.#parts.lease.become(host);
        this.#applied = "";
        this.#onState(this.#parts.lease.view);
      },
      state: (state) => this.#onState(state),
      leases: (changes) => this.#onLeases(changes),
      drain: () => this.#drain(),
      refuse: (config) => this.#refuseOverlap(config),
      reach: () => options.onChange(),
      damage: () => {
        this.#parts.endpoint.doubtCard();
        this.#program();
      },
    });
  }

  /** Takes part, unless an administrator has made this host leave. */
  start(): void {
    const { desired, left = false, subnets } = this.#parts.memory.record;
    if (left) this.#notified.resolve();
    // One that was being left when podnetd ended is still to be left.
    if (left && subnets === undefined) return;
    // The last known state is valid until etcd reports another.
    if (desired !== undefined) {
      this.#notify(desired);
      const recalled = this.#parts.known.recall(desired);
      if (recalled !== undefined) this.#parts.kernel.recall(recalled);
    }
    this.#started = true;
    this.#parts.lease.start();
    if (left) this.#parts.lease.leave();
  }

  /**
   * Resolves once programs on the host have been notified of the subnet, or there is none to
   * report.
   */
  get notified(): Promise<void> {
    return this.#notified.promise;
  }

  /** The desired state of the kernel, or that of an earlier start; undefined if there is none. */
  get desired(): OverlayDesired | undefined {
    return this.#parts.kernel.wanted ?? this.#parts.memory.record.desired;
  }

  get phase(): LeasePhase {
    return this.#started ? this.#parts.lease.view.phase : "left";
  }

  /** Times that the kernel could not be made as wanted. */
  get failures(): number {
    return this.#parts.kernel.failures;
  }

  get view(): OverlayView {
    return this.#parts.report.view(this.phase, this.#mtu);
  }

  get nodes(): readonly OverlayPeerView[] {
    return this.#parts.report.nodes;
  }

  /** Whether another host answered the last probe; undefined of one that is not probed. */
  reaches(leaseKey: string): boolean | undefined {
    return this.#parts.watch.of(leaseKey)?.reachable;
  }

  /** Nodes with the ends of other hosts' leases. While etcd is known to be away it is not asked. */
  leasedNodes(): Promise<readonly OverlayPeerView[]> {
    return this.#parts.report.leasedNodes();
  }

  /** The parts that a reservation is made with. Throws `OVERLAY_NOT_READY`. */
  get place(): {
    readonly prefix: Prefix;
    readonly config: OverlayConfig;
    readonly registry: Registry;
  } {
    const { config } = this.#parts.lease.view;
    if (config === undefined)
      throw new PodnetError("OVERLAY_NOT_READY", "The overlay's configuration is not known yet", {
        hint: "What is in the way: podnet overlay list",
        details: { overlay: this.name, phase: this.phase },
      });
    return { prefix: this.#options.prefix, config, registry: this.#parts.lease.registry };
  }

  async diff(signal: AbortSignal): Promise<readonly string[]> {
    await this.#parts.shared.look(this.#parts.leased.subnets);
    return [...(await this.#parts.kernel.diff(signal)), ...this.#parts.shared.troubles];
  }

  /** Looks for changes that other programs made on the host. */
  look(): void {
    this.#parts.kernel.look();
    void guard("overlay", () => this.#parts.shared.look(this.#parts.leased.subnets));
    this.#lookAtFile();
    this.#parts.others.notifyExtension(this.#parts.endpoint.extension);
  }

  /** Sets the hosts that have a record in etcd; undefined: that is not known. */
  present(owners: ReadonlySet<OwnerId> | undefined): void {
    this.#parts.departed.present(owners);
  }

  /**
   * Pauses changes of the kernel from the moment this resolves until the returned function is
   * called.
   */
  rest(): Promise<() => void> {
    return this.#parts.kernel.rest();
  }

  /** Whether an administrator made this host leave; it takes part again after a join. */
  get resigned(): boolean {
    return this.#parts.memory.record.left === true;
  }

  /**
   * Resolves when the subnets were drained and the lease was given up; goes on when the signal ends
   * the wait.
   */
  async leave(signal: AbortSignal): Promise<void> {
    this.#parts.memory.remember({ left: true });
    await this.end(signal);
  }

  /** Leaves because the overlay was removed: should it come again, this host takes part again. */
  async end(signal: AbortSignal): Promise<void> {
    if (!this.#started) return;
    this.#parts.lease.leave();
    await this.#leaveWaiters.wait(signal);
  }

  /** Programs on the host are notified of no subnet any more. */
  untell(): void {
    this.#parts.subnetEnv.remove();
  }

  join(takeOver: boolean): void {
    this.#parts.memory.remember({ left: false });
    this.#parts.lease.join(takeOver);
    if (this.#started) return;
    this.#started = true;
    this.#parts.lease.start();
  }

  /** Ends every task. Lease, device, routes and rules stay. */
  async [Symbol.asyncDispose](): Promise<void> {
    await closeParts(this.#parts);
  }

  #onState(state: HostLeaseState): void {
    const { config, own } = state;
    this.#parts.heard.follow(state);
    if (config !== this.#config) {
      this.#config = config;
      if (config !== undefined) {
        this.#parts.others.configure(config.backend.type);
        this.#parts.endpoint.configure(config);
      }
    }
    const changes = this.#parts.others.own(own?.key);
    this.#parts.kernel.note(changes);
    const { phase } = this;
    const subnets = own === undefined ? "" : subnetsText(own.subnets);
    const lease = `${phase} ${subnets} ${this.#mtu}`;
    if (lease !== this.#applied) {
      this.#applied = lease;
      this.#follow(state, phase);
      this.#options.onChange();
    } else if (changes.length > 0) this.#program();
  }

  #refuseOverlap(config: OverlayConfig): Promise<PodnetError | undefined> {
    const { name, network, networks, overlays } = this.#options;
    const former = this.#parts.subnetEnv.former()?.networks;
    const sides = this.desired?.sides ?? [];
    const inForce = [...sides.map((side) => side.network), former?.v4, former?.v6];
    return refuseOverlap(config, inForce, (wanted) =>
      overlays.overlaps(name, wanted, networks.find(network).bridge),
    );
  }

  #onLeases(changes: readonly EntryChange[]): void {
    const peers = this.#parts.others.apply(changes);
    this.#parts.kernel.note(peers);
    if (peers.length > 0) this.#program();
  }

  get #mtu(): number {
    return this.#parts.endpoint.mtu ?? this.#parts.memory.record.network?.mtu ?? 0;
  }

  /** The lease is another one, or fares otherwise: the network follows, and the kernel. */
  #follow({ own }: HostLeaseState, phase: LeasePhase): void {
    const { log } = this.#options;
    const subnet = own && subnetsText(own.subnets);
    log[phase === "lost" ? "error" : "info"]({ overlay: this.name, phase, subnet }, "Lease");
    if (phase === "left") {
      this.#parts.leaving.add("left", () => this.#left());
      return;
    }
    // The drain has the network move.
    if (phase === "draining") return;
    if (own === undefined) {
      this.#become(this.#parts.leased.subnets, phase);
      return;
    }
    this.#parts.memory.note({ subnets: subnetsRecord(own.subnets) });
    this.#become(cidrsOf(own.subnets), phase);
    this.#program();
  }

  #become(subnets: readonly Cidr[], phase: LeasePhase): void {
    const mtu = this.#networkMtu;
    void guard("overlay", () => this.#parts.leased.become({ subnets, mtu }, phase));
  }

  /** The network's present MTU, before anything is known. */
  get #networkMtu(): number {
    const { networks, network } = this.#options;
    return this.#mtu === 0 ? networks.find(network).mtu : this.#mtu;
  }

  async #drain(): Promise<void> {
    const phase = this.#parts.lease.view.leaving ? "draining" : "moving";
    const drained = await this.#parts.leased.become({ subnets: [], mtu: this.#networkMtu }, phase);
    if (!drained) throw new PodnetError("CANCELLED", "The subnets are to stay after all");
  }

  async #left(): Promise<void> {
    if (this.phase !== "left") return;
    const gone = await this.#parts.leased.become({ subnets: [], mtu: this.#networkMtu }, "left");
    if (!gone) return;
    // While it is known that there is something to give up: the next start goes on with it.
    this.#parts.subnetEnv.remove();
    this.#parts.memory.forgetLease();
    this.#parts.known.forget();
    this.#parts.kernel.want(undefined);
    this.#parts.watch.follow({ backend: "alloc", mtu: 0, peers: [] });
    this.#options.onLeft();
    this.#leaveWaiters.done();
  }

  #program(): void {
    const { name, settings } = this.#options;
    const { own } = this.#parts.lease.view;
    const { backend, uplink, macs } = this.#parts.endpoint;
    if (own === undefined || this.#config === undefined) return;
    if (backend === undefined || uplink === undefined) return;
    const { subnets } = own;
    const config = this.#config;
    const shape = makeShape({ name, settings, config, backend, uplink, macs, subnets });
    this.#parts.kernel.want(shape);
    this.#parts.others.notifyExtension(this.#parts.endpoint.extension);
  }

  #made(shape: OverlayShape): void {
    // The host left the overlay during the call.
    if (this.#parts.kernel.wanted === undefined) return;
    this.#parts.memory.note({ desired: makeDesired(shape, []) });
    this.#parts.known.note(shape, () => this.#parts.kernel.wanted);
    this.#notify(shape);
    this.#parts.lease.ready();
    void guard("overlay", () => this.#parts.shared.look(this.#parts.leased.subnets));
    const backend = this.#config?.backend.type;
    if (backend !== undefined)
      this.#parts.watch.follow({ backend, mtu: this.#mtu, peers: this.#parts.others.peers });
  }

  #lookAtFile(): void {
    const { name, subnetFile, onHealed } = this.#options;
    if (!this.#parts.subnetEnv.look()) return;
    onHealed(name, [{ subject: subnetFile, found: "not so", wanted: "so" }], 0);
  }

  /** Programs on the host learn of it when its rules are there. */
  #notify(shape: OverlayShape): void {
    const env = subnetEnvOf(shape, this.#mtu);
    if (env !== undefined) this.#parts.subnetEnv.write(env);
  }
}
