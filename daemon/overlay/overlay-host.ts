import type { Clock } from "../../core/clock.ts";
import { PodnetError, toPodnetError } from "../../core/errors.ts";
import { macFromRandom } from "../../core/address.ts";
import type { NetworkName } from "../../core/names.ts";
import type { Log } from "../../linux/log.ts";
import type { Deviation } from "../../network/deviation.ts";
import type { OverlayDesired } from "../../network/overlay/desired.ts";
import { overlayMtu } from "../../network/overlay/mtu.ts";
import type { Overlays } from "../../network/overlay/overlays.ts";
import { LeaseDriver } from "../../overlay/drive-lease.ts";
import type { OverlayConfig } from "../../overlay/flannel/config.ts";
import { type Subnets, subnetsText } from "../../overlay/flannel/key.ts";
import type { Prefix } from "../../overlay/flannel/prefix.ts";
import type { LeaseState } from "../../overlay/lease-state.ts";
import { type LeasePhase, leaseStatus } from "../../overlay/lease-status.ts";
import type { OwnerId } from "../../overlay/owner.ts";
import { Peers } from "../../overlay/peers.ts";
import type { EntryChange, Registry } from "../../overlay/registry.ts";
import type { LeaseStore } from "../../overlay/store.ts";
import type { OverlayConfig as OverlaySettings } from "../config/overlay.ts";
import type { Networks } from "../networks/networks.ts";
import type { Database } from "../store/database.ts";
import {
  type OverlayRecord,
  readOverlay,
  recordedSubnets,
  writeOverlay,
} from "../store/overlays.ts";
import type { Uplink } from "./choose-uplink.ts";
import { UplinkFollower } from "./follow-uplink.ts";
import { nodeViews, overlayView } from "./host-view.ts";
import { KernelFollower } from "./kernel-follower.ts";
import { LeasedNetwork } from "./leased-network.ts";
import { cidrsOf, familiesOf, hostOf, kernelBackend, makeDesired } from "./make-desired.ts";
import { SubnetFile } from "./subnet-file.ts";
import type { OverlayPeerView, OverlayView } from "./view.ts";

export interface OverlayHostParts {
  readonly name: string;
  /** Where its keys are. */
  readonly prefix: Prefix;
  readonly network: NetworkName;
  readonly subnetFile: string;
  readonly settings: OverlaySettings;
  readonly owner: OwnerId;
  readonly store: LeaseStore;
  readonly overlays: Overlays;
  readonly networks: Networks;
  readonly db: Database;
  readonly clock: Clock;
  readonly log: Log;
  readonly randomBytes: (count: number) => Uint8Array;
  /** Others had changed it, and it was put right. */
  readonly onHealed: (name: string, found: readonly Deviation[], pauseMs: number) => void;
  /** Its lease, its phase or what it carries is another. */
  readonly onChange: () => void;
  /** It has been left: what the kernel has of it is to go. */
  readonly onLeft: () => void;
}

/** Nothing is told of a host before its interface has been chosen: then nothing can be written either. */
const unknownHost = {
  publicIp: undefined,
  publicIp6: undefined,
  attributes: { type: "alloc" },
} as const;

/** This host's part of one overlay: its lease, the network that follows it, and what the kernel has of it. */
export class OverlayHost implements AsyncDisposable {
  readonly name: string;
  readonly #parts: OverlayHostParts;
  readonly #driver: LeaseDriver;
  readonly #kernel: KernelFollower;
  readonly #leased: LeasedNetwork;
  readonly #file: SubnetFile;
  readonly #told = Promise.withResolvers<void>();
  readonly #leavers = new Set<() => void>();
  #record: OverlayRecord;
  #peers = new Peers("vxlan");
  #backendType: string | undefined;
  #config: OverlayConfig | undefined;
  #families = "";
  #uplinks: UplinkFollower | undefined;
  #uplink: Uplink | undefined;
  #uplinkTrouble: string | undefined;
  #started = false;
  #settled = "";
  #closing: Promise<void> = Promise.resolve();

  constructor(parts: OverlayHostParts) {
    this.#parts = parts;
    const { name, db, log, clock, settings, networks, network, onHealed } = parts;
    this.name = name;
    this.#record = readOverlay(db, name);
    this.#file = new SubnetFile({
      path: parts.subnetFile,
      log,
      ready: () => this.#told.resolve(),
    });
    this.#kernel = new KernelFollower({
      overlays: parts.overlays,
      clock,
      log,
      onMade: (desired) => this.#made(desired),
      onHealed: (found, pauseMs) => onHealed(name, found, pauseMs),
    });
    this.#leased = new LeasedNetwork(
      {
        network,
        overlay: name,
        networks,
        db,
        log,
        remember: (shape) => this.#remember({ network: shape }),
      },
      this.#record.left === true ? "left" : "waiting",
    );
    const { prefix, owner, store } = parts;
    const { ttlSeconds, marginSeconds } = settings;
    this.#driver = new LeaseDriver({
      store,
      settings: { prefix, ttlSeconds, marginSeconds, misfit: "drain" },
      host: { owner, ...unknownHost },
      previous: recordedSubnets(this.#record) ?? this.#file.former()?.subnets,
      clock,
      random: Math.random,
      onState: (state) => this.#onState(state),
      onLeases: (changes, registry) => this.#onLeases(changes, registry),
      drain: () => this.#drain(),
    });
  }

  /** Takes part, unless this host was told to leave. */
  start(): void {
    const { desired, left } = this.#record;
    if (left === true) {
      this.#told.resolve();
      return;
    }
    // What was last known holds until etcd says otherwise.
    if (desired !== undefined) this.#tell(desired);
    this.#started = true;
    this.#driver.start();
  }

  /** Programs on the host have been told of the subnet, or there is none to be told of. */
  get told(): Promise<void> {
    return this.#told.promise;
  }

  /** What the kernel is to have of it, or has from an earlier start; undefined when nothing. */
  get desired(): OverlayDesired | undefined {
    return this.#kernel.wanted ?? this.#record.desired;
  }

  get phase(): LeasePhase {
    const { state } = this.#driver;
    if (!this.#started) return "left";
    const { phase } = leaseStatus(state, 0);
    // What etcd has of an earlier start is not known yet, and has to be given up first.
    const unsure = phase === "left" && (!state.listed || state.request !== undefined);
    return unsure ? "waiting" : phase;
  }

  /** Times that the kernel could not be made as wanted. */
  get failures(): number {
    return this.#kernel.failures;
  }

  get view(): OverlayView {
    const { name, network, clock } = this.#parts;
    const { state } = this.#driver;
    return overlayView({
      name,
      network,
      state,
      phase: this.phase,
      stored: this.phase === "left" ? undefined : recordedSubnets(this.#record),
      uplink: this.#uplink,
      mtu: this.#mtu,
      peers: this.#peers,
      troubles: [this.#uplinkTrouble, this.#backendTrouble, this.#kernel.error?.message].filter(
        (text) => text !== undefined,
      ),
      clock,
    });
  }

  get nodes(): readonly OverlayPeerView[] {
    return nodeViews(this.#driver.registry, {
      state: this.#driver.state,
      clock: this.#parts.clock,
    });
  }

  /** What reserving is to be done with. Throws `OVERLAY_NOT_READY`. */
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

  diff(signal: AbortSignal): Promise<readonly string[]> {
    return this.#kernel.diff(signal);
  }

  /** Somebody may have changed something on the host. */
  look(): void {
    this.#kernel.look();
  }

  /** The kernel is not touched from when this resolves until what it answers is called. */
  rest(): Promise<() => void> {
    return this.#kernel.rest();
  }

  /** Resolves when the subnets were drained and the lease was given up; goes on when the signal ends the wait. */
  async leave(signal: AbortSignal): Promise<void> {
    this.#remember({ left: true });
    if (!this.#started) return;
    this.#driver.leave();
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const stop = (): void =>
      reject(
        new PodnetError("CANCELLED", "Nobody waits for the overlay to be left any more", {
          hint: "It is left when the last pod on it is gone: podnet overlay list",
        }),
      );
    this.#leavers.add(resolve);
    signal.addEventListener("abort", stop, { once: true });
    if (signal.aborted) stop();
    try {
      await promise;
    } finally {
      this.#leavers.delete(resolve);
      signal.removeEventListener("abort", stop);
    }
  }

  /** Programs on the host are told of no subnet any more. */
  untell(): void {
    this.#file.remove();
  }

  join(): void {
    this.#remember({ left: false });
    this.#driver.join();
    if (this.#started) return;
    this.#started = true;
    this.#driver.start();
  }

  /** Ends every task. Lease, device, routes and rules stay. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.#driver[Symbol.asyncDispose]();
    await this.#leased[Symbol.asyncDispose]();
    await this.#closing;
    await this.#uplinks?.[Symbol.asyncDispose]();
    await this.#kernel[Symbol.asyncDispose]();
  }

  #remember(more: OverlayRecord): void {
    const record = { ...this.#record, ...more };
    if (JSON.stringify(record) === JSON.stringify(this.#record)) return;
    this.#record = record;
    writeOverlay(this.#parts.db, this.name, record);
  }

  #onState(state: LeaseState): void {
    if (state.config !== this.#config) this.#configured(state.config);
    const entryOf = (key: string) => this.#driver.registry.get(key);
    const news = this.#peers.own(state.own?.key, entryOf);
    const { phase } = this;
    const settled = `${phase} ${state.own === undefined ? "" : subnetsText(state.own.subnets)} ${this.#mtu}`;
    if (settled !== this.#settled) {
      this.#settled = settled;
      this.#settle(state, phase);
      this.#parts.onChange();
    } else if (news.length > 0) this.#program();
  }

  #onLeases(changes: readonly EntryChange[], _registry: Registry): void {
    if (this.#peers.apply(changes).length > 0) this.#program();
  }

  /** The overlay's configuration is another one, or known at last. */
  #configured(config: OverlayConfig | undefined): void {
    this.#config = config;
    if (config === undefined) return;
    const { backend } = config;
    if (this.#backendType !== backend.type) {
      this.#backendType = backend.type;
      this.#peers = new Peers(backend.type);
      const entries = [...this.#driver.registry];
      this.#peers.apply(entries.map((after) => ({ key: after.key, before: undefined, after })));
    }
    const families = familiesOf(config);
    if (this.#families === families.join()) {
      this.#present();
      return;
    }
    this.#families = families.join();
    const former = this.#uplinks;
    this.#closing = this.#closing.then(() => former?.[Symbol.asyncDispose]());
    this.#uplinks = new UplinkFollower({
      choice: this.#parts.settings.choice,
      families,
      onUplink: (uplink) => {
        this.#uplink = uplink;
        this.#uplinkTrouble = undefined;
        this.#present();
      },
      onTrouble: (error) => {
        this.#uplinkTrouble = error.message;
        this.#parts.log.error({ err: error }, "No interface leads to the other hosts");
      },
    });
    void this.#uplinks.look();
  }

  get #backendTrouble(): string | undefined {
    const backend = this.#config?.backend;
    return backend === undefined || kernelBackend(backend) !== undefined
      ? undefined
      : `podnet has no backend ${backend.type} here`;
  }

  /** Tells the others where this host is. */
  #present(): void {
    const { owner } = this.#parts;
    if (this.#config === undefined || this.#uplink === undefined) return;
    if (this.#backendTrouble !== undefined) return;
    const macs = this.#macs(this.#config);
    this.#driver.become(hostOf(owner, this.#uplink, this.#config.backend, macs));
    this.#settled = "";
    this.#onState(this.#driver.state);
  }

  /** Drawn once, and kept for all time: others know this host by them. */
  #macs(config: OverlayConfig): NonNullable<OverlayRecord["macs"]> {
    const known = this.#record.macs ?? {};
    const drawn = familiesOf(config).map((family) => [
      family,
      known[family] ?? macFromRandom(this.#parts.randomBytes(6)),
    ]);
    const macs = { ...known, ...Object.fromEntries(drawn) };
    this.#remember({ macs });
    return macs;
  }

  get #mtu(): number {
    const backend = this.#config && kernelBackend(this.#config.backend);
    if (this.#config === undefined || backend === undefined || this.#uplink === undefined)
      return this.#record.network?.mtu ?? 0;
    return overlayMtu(backend, familiesOf(this.#config), this.#uplink.mtu);
  }

  /** The lease is another one, or fares otherwise: the network follows, and the kernel. */
  #settle({ own }: LeaseState, phase: LeasePhase): void {
    const { log } = this.#parts;
    const level = phase === "lost" ? "error" : "info";
    log[level](
      { overlay: this.name, phase, ...(own && { subnet: subnetsText(own.subnets) }) },
      "Lease",
    );
    if (phase === "left") {
      this.#left();
      return;
    }
    // The drain has the network move.
    if (phase === "draining") return;
    if (own === undefined) {
      void this.#leased.become({ subnets: this.#leased.subnets, mtu: this.#networkMtu }, phase);
      return;
    }
    this.#remember({ subnets: subnetsRecord(own.subnets) });
    void this.#leased.become({ subnets: cidrsOf(own.subnets), mtu: this.#networkMtu }, phase);
    this.#program();
  }

  /** As it is, before anything is known. */
  get #networkMtu(): number {
    const { networks, network } = this.#parts;
    return this.#mtu === 0 ? networks.find(network).mtu : this.#mtu;
  }

  async #drain(): Promise<void> {
    const drained = await this.#leased.become({ subnets: [], mtu: this.#networkMtu }, "draining");
    if (!drained) throw new PodnetError("CANCELLED", "The subnets are to stay after all");
  }

  #left(): void {
    const leave = async (): Promise<void> => {
      const gone = await this.#leased.become({ subnets: [], mtu: this.#networkMtu }, "left");
      if (!gone) return;
      const { subnets: _subnets, desired: _desired, ...kept } = this.#record;
      this.#record = kept;
      writeOverlay(this.#parts.db, this.name, kept);
      this.#kernel.want(undefined);
      this.#file.remove();
      this.#parts.onLeft();
      for (const resolve of this.#leavers) resolve();
    };
    void leave().catch((thrown: unknown) => {
      this.#parts.log.error({ err: toPodnetError(thrown) }, "Cannot take away what has been left");
    });
  }

  #program(): void {
    const { name, settings } = this.#parts;
    const { own } = this.#driver.state;
    const config = this.#config;
    const backend = config && kernelBackend(config.backend);
    if (own === undefined || config === undefined || backend === undefined) return;
    if (this.#uplink === undefined) return;
    this.#kernel.want(
      makeDesired({
        name,
        settings,
        config,
        backend,
        uplink: this.#uplink,
        macs: this.#macs(config),
        subnets: own.subnets,
        peers: this.#peers,
      }),
    );
  }

  #made(desired: OverlayDesired): void {
    this.#remember({
      desired: { ...desired, sides: desired.sides.map((side) => ({ ...side, peers: [] })) },
    });
    this.#tell(desired);
  }

  /** Programs on the host learn of it when its rules are there. */
  #tell({ sides, masquerade }: OverlayDesired): void {
    const of = (family: ":" | ".") => sides.find(({ network }) => network.includes(family));
    const [v4, v6] = [of("."), of(":")];
    const subnets = recordedSubnets({
      subnets: { ...(v4 && { v4: v4.subnet }), ...(v6 && { v6: v6.subnet }) },
    });
    if (subnets === undefined) return;
    this.#file.write({
      networks: { v4: v4?.network, v6: v6?.network },
      subnets,
      mtu: this.#mtu,
      masquerade: masquerade !== undefined,
    });
  }
}

const subnetsRecord = ({ v4, v6 }: Subnets): NonNullable<OverlayRecord["subnets"]> => ({
  ...(v4 === undefined ? {} : { v4 }),
  ...(v6 === undefined ? {} : { v6 }),
});
