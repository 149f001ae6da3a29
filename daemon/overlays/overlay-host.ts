import { PodnetError } from "../../core/errors.ts";
import type { Cidr } from "../../core/address.ts";
import { guard } from "../../core/guard.ts";
import type { OverlayDesired, OverlayShape } from "../../network/model/overlay.ts";
import { LeaseDriver } from "../../overlay/drive-lease.ts";
import type { OverlayConfig } from "../../overlay/flannel/config.ts";
import { subnetsText } from "../../overlay/flannel/key.ts";
import type { Prefix } from "../../overlay/flannel/prefix.ts";
import type { OwnerId } from "../../overlay/owner.ts";
import type { LeaseState } from "../../overlay/lease-state.ts";
import type { LeasePhase } from "../../overlay/lease-status.ts";
import type { EntryChange, Registry } from "../../overlay/registry.ts";
import { WorkQueue } from "../reconcile/work-queue.ts";
import { type OverlayRecord, recordedSubnets, subnetsRecord } from "./store.ts";
import { LocalEndpoint } from "./local-endpoint.ts";
import { HostReport } from "./host-report.ts";
import { knownPhase } from "./host-view.ts";
import { KernelFollower } from "./kernel/kernel-follower.ts";
import { LastHeard } from "./probes/last-heard.ts";
import { LeaseEnds } from "./lease/lease-ends.ts";
import { LeasedNetwork } from "./lease/leased-network.ts";
import { cidrsOf, makeDesired, makeShape, subnetEnvOf } from "./kernel/make-desired.ts";
import { OtherHosts } from "./records/other-hosts.ts";
import type { OverlayHostParts } from "./overlay-host-parts.ts";
import { OverlayMemory } from "./records/overlay-memory.ts";
import { PeerMemory } from "./records/peer-memory.ts";
import { DepartedHosts } from "./departed-hosts.ts";
import { LeaveWaiters } from "./lease/leave-waiters.ts";
import { TunnelWatch } from "./probes/tunnel-watch.ts";
import { refuseOverlap } from "./lease/refuse-overlap.ts";
import { RefusedPeers } from "./refused-peers.ts";
import { SharedSubnet } from "./shared-subnet.ts";
import { SubnetFile } from "./kernel/subnet-file.ts";
import { Unread } from "./records/unread.ts";
import type { OverlayPeerView, OverlayView } from "./view.ts";

/** The wait before removing the leftovers of a leave is retried. */
const backoff = { firstMs: 500, longestMs: 2000 } as const;

/**
 * A host is not reported before its local endpoint is known: without it nothing can be written
 * either.
 */
const unknownHost = {
  publicIp: undefined,
  publicIp6: undefined,
  attributes: { type: "alloc" },
} as const;

/**
 * This host's part of one overlay: its lease, the network that follows the lease, and the kernel's
 * part.
 */
export class OverlayHost implements AsyncDisposable {
  readonly name: string;
  readonly #parts: OverlayHostParts;
  readonly #memory: OverlayMemory;
  readonly #known: PeerMemory;
  readonly #heard: LastHeard;
  readonly #driver: LeaseDriver;
  readonly #endpoint: LocalEndpoint;
  readonly #others: OtherHosts;
  readonly #kernel: KernelFollower;
  readonly #leased: LeasedNetwork;
  readonly #subnetEnv: SubnetFile;
  readonly #watch: TunnelWatch;
  readonly #unread: Unread;
  readonly #refused: RefusedPeers;
  readonly #departed: DepartedHosts;
  readonly #shared: SharedSubnet;
  readonly #report: HostReport;
  readonly #notified = Promise.withResolvers<void>();
  readonly #leaveWaiters = new LeaveWaiters();
  #config: OverlayConfig | undefined;
  #started = false;
  /** The state of the lease that was last applied. */
  #applied = "";
  /** A single key: removing what is left after a leave. */
  readonly #leaving: WorkQueue<"left">;

  constructor(parts: OverlayHostParts) {
    this.#parts = parts;
    const { name, db, log, clock, bootId, settings, networks, network, owner, onHealed } = parts;
    this.name = name;
    this.#leaving = new WorkQueue({
      name: "overlay-remains",
      backoff,
      onDegraded: (_, { error }) =>
        log.error({ err: error }, "Failed to remove overlay after leave; retrying"),
    });
    const memory = new OverlayMemory(db, name, log);
    this.#memory = memory;
    this.#unread = new Unread(log, `overlay ${name}`);
    this.#refused = new RefusedPeers(name, log);
    this.#shared = new SharedSubnet({
      log,
      overlay: name,
      foreignAddresses: (subnets) =>
        parts.overlays.foreignAddresses(subnets, networks.find(network).bridge),
    });
    this.#heard = new LastHeard(memory, clock);
    this.#known = new PeerMemory({ db, overlay: name, bootId, clock, log });
    const ready = (): void => this.#notified.resolve();
    this.#subnetEnv = new SubnetFile({ path: parts.subnetFile, log, ready });
    this.#kernel = new KernelFollower({
      overlays: parts.overlays,
      peers: () => this.#others.peers,
      clock,
      log,
      onMade: (shape, { refused }) => {
        this.#refused.follow(refused);
        this.#made(shape);
      },
      onHealed: (found, pauseMs) => onHealed(name, found, pauseMs),
    });
    this.#leased = new LeasedNetwork(
      {
        network,
        overlay: name,
        networks,
        db,
        clock,
        log,
        remember: (shape) => memory.remember({ network: shape }),
        takeBack: (shape) => memory.note({ network: shape }),
      },
      firstPhase(memory.record),
    );
    this.#endpoint = new LocalEndpoint({
      settings,
      owner,
      memory,
      log,
      randomBytes: parts.randomBytes,
      conflict: parts.conflict,
      foreignMac: (device) => parts.overlays.foreignMac(device),
      onHost: (host) => {
        this.#driver.become(host);
        this.#applied = "";
        this.#onState(this.#driver.state);
      },
    });
    const { prefix, store } = parts;
    const { ttlSeconds, marginSeconds } = settings;
    this.#driver = new LeaseDriver({
      store,
      settings: { prefix, ttlSeconds, marginSeconds, misfit: "drain" },
      host: { owner, ...unknownHost },
      previous: recordedSubnets(memory.record) ?? this.#subnetEnv.former()?.subnets,
      clock,
      random: Math.random,
      onState: (state) => this.#onState(state),
      onUnread: (reasons) => this.#unread.set(reasons),
      onLeases: (changes) => this.#onLeases(changes),
      drain: () => this.#drain(),
      ...(settings.allowOverlap ? {} : { refuse: (config) => this.#refuseOverlap(config) }),
    });
    this.#others = new OtherHosts(this.#driver.registry);
    this.#departed = new DepartedHosts({
      leases: this.#driver.registry,
      addresses: () =>
        [this.#endpoint.uplink?.publicIp, this.#endpoint.uplink?.publicIp6].filter(
          (ip) => ip !== undefined,
        ),
      onDeparted: (owners) => {
        log.info(
          { overlay: name, hosts: owners.size },
          "Leases of hosts that are gone may be taken over",
        );
        this.#driver.departed(owners);
      },
    });
    this.#watch = new TunnelWatch({
      settings,
      log,
      onDamage: () => {
        this.#endpoint.doubtCard();
        this.#program();
      },
    });
    this.#report = new HostReport({
      name,
      network,
      clock,
      driver: this.#driver,
      memory,
      heard: this.#heard,
      known: this.#known,
      endpoint: this.#endpoint,
      others: this.#others,
      kernel: this.#kernel,
      leased: this.#leased,
      watch: this.#watch,
      unread: this.#unread,
      refused: this.#refused,
      shared: this.#shared,
      ends: new LeaseEnds({ store, clock }),
      tunnels: parts.overlays.tunnels,
    });
  }

  /** Takes part, unless an administrator has made this host leave. */
  start(): void {
    const { desired, left = false, subnets } = this.#memory.record;
    if (left) this.#notified.resolve();
    // One that was being left when podnetd ended is still to be left.
    if (left && subnets === undefined) return;
    // The last known state is valid until etcd reports another.
    if (desired !== undefined) {
      this.#notify(desired);
      const recalled = this.#known.recall(desired);
      if (recalled !== undefined) this.#kernel.recall(recalled);
    }
    this.#started = true;
    this.#driver.start();
    if (left) this.#driver.leave();
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
    return this.#kernel.wanted ?? this.#memory.record.desired;
  }

  get phase(): LeasePhase {
    const { state } = this.#driver;
    if (!this.#started) return "left";
    return knownPhase(state);
  }

  /** Times that the kernel could not be made as wanted. */
  get failures(): number {
    return this.#kernel.failures;
  }

  get view(): OverlayView {
    return this.#report.view(this.phase, this.#mtu);
  }

  get nodes(): readonly OverlayPeerView[] {
    return this.#report.nodes;
  }

  /** Nodes with the ends of other hosts' leases. While etcd is known to be away it is not asked. */
  leasedNodes(): Promise<readonly OverlayPeerView[]> {
    return this.#report.leasedNodes();
  }

  /** The parts that a reservation is made with. Throws `OVERLAY_NOT_READY`. */
  get place(): {
    readonly prefix: Prefix;
    readonly config: OverlayConfig;
    readonly registry: Registry;
  } {
    const { config } = this.#driver.state;
    if (config === undefined)
      throw new PodnetError("OVERLAY_NOT_READY", "The overlay's configuration is not known yet", {
        hint: "What is in the way: podnet overlay list",
        details: { overlay: this.name, phase: this.phase },
      });
    return { prefix: this.#parts.prefix, config, registry: this.#driver.registry };
  }

  async diff(signal: AbortSignal): Promise<readonly string[]> {
    await this.#shared.look(this.#leased.subnets);
    return [...(await this.#kernel.diff(signal)), ...this.#shared.troubles];
  }

  /** Looks for changes that other programs made on the host. */
  look(): void {
    this.#kernel.look();
    void guard("overlay", () => this.#shared.look(this.#leased.subnets));
    this.#lookAtFile();
    this.#others.notifyExtension(this.#endpoint.extension);
  }

  /** Sets the hosts that have a record in etcd; undefined: that is not known. */
  present(owners: ReadonlySet<OwnerId> | undefined): void {
    this.#departed.present(owners);
  }

  /**
   * Pauses changes of the kernel from the moment this resolves until the returned function is
   * called.
   */
  rest(): Promise<() => void> {
    return this.#kernel.rest();
  }

  /** Whether an administrator made this host leave; it takes part again after a join. */
  get resigned(): boolean {
    return this.#memory.record.left === true;
  }

  /**
   * Resolves when the subnets were drained and the lease was given up; goes on when the signal ends
   * the wait.
   */
  async leave(signal: AbortSignal): Promise<void> {
    this.#memory.remember({ left: true });
    await this.end(signal);
  }

  /** Leaves because the overlay was removed: should it come again, this host takes part again. */
  async end(signal: AbortSignal): Promise<void> {
    if (!this.#started) return;
    this.#driver.leave();
    await this.#leaveWaiters.wait(signal);
  }

  /** Programs on the host are notified of no subnet any more. */
  untell(): void {
    this.#subnetEnv.remove();
  }

  join(takeOver: boolean): void {
    this.#memory.remember({ left: false });
    this.#driver.join(takeOver);
    if (this.#started) return;
    this.#started = true;
    this.#driver.start();
  }

  /** Ends every task. Lease, device, routes and rules stay. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.#departed[Symbol.dispose]();
    // A drain of the lease waits for the network.
    await Promise.all([
      this.#leased[Symbol.asyncDispose](),
      this.#driver[Symbol.asyncDispose](),
      this.#leaving.close(),
    ]);
    await this.#endpoint[Symbol.asyncDispose]();
    await this.#others[Symbol.asyncDispose]();
    await this.#kernel[Symbol.asyncDispose]();
    this.#known[Symbol.dispose]();
    this.#heard[Symbol.dispose]();
    this.#memory[Symbol.dispose]();
    this.#watch[Symbol.dispose]();
    this.#subnetEnv[Symbol.dispose]();
  }

  #onState(state: LeaseState): void {
    const { config, own } = state;
    this.#heard.follow(state);
    if (config !== this.#config) {
      this.#config = config;
      if (config !== undefined) {
        this.#others.configure(config.backend.type);
        this.#endpoint.configure(config);
      }
    }
    const changes = this.#others.own(own?.key);
    this.#kernel.note(changes);
    const { phase } = this;
    const subnets = own === undefined ? "" : subnetsText(own.subnets);
    const lease = `${phase} ${subnets} ${this.#mtu}`;
    if (lease !== this.#applied) {
      this.#applied = lease;
      this.#follow(state, phase);
      this.#parts.onChange();
    } else if (changes.length > 0) this.#program();
  }

  #refuseOverlap(config: OverlayConfig): Promise<PodnetError | undefined> {
    const { name, network, networks, overlays } = this.#parts;
    const former = this.#subnetEnv.former()?.networks;
    const sides = this.desired?.sides ?? [];
    const inForce = [...sides.map((side) => side.network), former?.v4, former?.v6];
    return refuseOverlap(config, inForce, (wanted) =>
      overlays.overlaps(name, wanted, networks.find(network).bridge),
    );
  }

  #onLeases(changes: readonly EntryChange[]): void {
    const peers = this.#others.apply(changes);
    this.#kernel.note(peers);
    if (peers.length > 0) this.#program();
  }

  get #mtu(): number {
    return this.#endpoint.mtu ?? this.#memory.record.network?.mtu ?? 0;
  }

  /** The lease is another one, or fares otherwise: the network follows, and the kernel. */
  #follow({ own }: LeaseState, phase: LeasePhase): void {
    const { log } = this.#parts;
    const subnet = own && subnetsText(own.subnets);
    log[phase === "lost" ? "error" : "info"]({ overlay: this.name, phase, subnet }, "Lease");
    if (phase === "left") {
      this.#leaving.add("left", () => this.#left());
      return;
    }
    // The drain has the network move.
    if (phase === "draining") return;
    if (own === undefined) {
      this.#become(this.#leased.subnets, phase);
      return;
    }
    this.#memory.note({ subnets: subnetsRecord(own.subnets) });
    this.#become(cidrsOf(own.subnets), phase);
    this.#program();
  }

  #become(subnets: readonly Cidr[], phase: LeasePhase): void {
    const mtu = this.#networkMtu;
    void guard("overlay", () => this.#leased.become({ subnets, mtu }, phase));
  }

  /** The network's present MTU, before anything is known. */
  get #networkMtu(): number {
    const { networks, network } = this.#parts;
    return this.#mtu === 0 ? networks.find(network).mtu : this.#mtu;
  }

  async #drain(): Promise<void> {
    const phase = this.#driver.state.intended === "leave" ? "draining" : "moving";
    const drained = await this.#leased.become({ subnets: [], mtu: this.#networkMtu }, phase);
    if (!drained) throw new PodnetError("CANCELLED", "The subnets are to stay after all");
  }

  async #left(): Promise<void> {
    if (this.phase !== "left") return;
    const gone = await this.#leased.become({ subnets: [], mtu: this.#networkMtu }, "left");
    if (!gone) return;
    // While it is known that there is something to give up: the next start goes on with it.
    this.#subnetEnv.remove();
    this.#memory.forgetLease();
    this.#known.forget();
    this.#kernel.want(undefined);
    this.#watch.follow({ backend: "alloc", mtu: 0, peers: [] });
    this.#parts.onLeft();
    this.#leaveWaiters.done();
  }

  #program(): void {
    const { name, settings } = this.#parts;
    const { own } = this.#driver.state;
    const { backend, uplink, macs } = this.#endpoint;
    if (own === undefined || this.#config === undefined) return;
    if (backend === undefined || uplink === undefined) return;
    const { subnets } = own;
    const config = this.#config;
    const shape = makeShape({ name, settings, config, backend, uplink, macs, subnets });
    this.#kernel.want(shape);
    this.#others.notifyExtension(this.#endpoint.extension);
  }

  #made(shape: OverlayShape): void {
    // The host left the overlay during the call.
    if (this.#kernel.wanted === undefined) return;
    this.#memory.note({ desired: makeDesired(shape, []) });
    this.#known.note(shape, () => this.#kernel.wanted);
    this.#notify(shape);
    void guard("overlay", () => this.#shared.look(this.#leased.subnets));
    const backend = this.#config?.backend.type;
    if (backend !== undefined)
      this.#watch.follow({ backend, mtu: this.#mtu, peers: this.#others.peers });
  }

  #lookAtFile(): void {
    const { name, subnetFile, onHealed } = this.#parts;
    if (!this.#subnetEnv.look()) return;
    onHealed(name, [{ subject: subnetFile, found: "not so", wanted: "so" }], 0);
  }

  /** Programs on the host learn of it when its rules are there. */
  #notify(shape: OverlayShape): void {
    const env = subnetEnvOf(shape, this.#mtu);
    if (env !== undefined) this.#subnetEnv.write(env);
  }
}

/** How the lease is before anything is known of it. */
const firstPhase = ({ left = false, subnets }: OverlayRecord): LeasePhase =>
  !left ? "waiting" : subnets === undefined ? "left" : "draining";
