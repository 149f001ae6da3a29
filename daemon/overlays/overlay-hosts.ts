import { PodnetError } from "../../core/errors.ts";
import { type NetworkName, parseNetworkName } from "../../core/names.ts";
import { overlayChangeText } from "../../network/overlay/change.ts";
import type { OverlayDesired } from "../../network/model/overlay.ts";
import { Overlays } from "../../network/overlay/overlays.ts";
import type { OverlayRules } from "../../network/bridge/overlay-rules.ts";
import type { Etcd } from "../../etcd/etcd.ts";
import type { Subnets } from "../../overlay/flannel/key.ts";
import { networkPrefix, type Prefix } from "../../overlay/flannel/prefix.ts";
import type { OwnerId } from "../../overlay/owner.ts";
import type { Reservation } from "../../overlay/reservations.ts";
import type { Config } from "../config/config.ts";
import { knownOverlays } from "./store.ts";
import { type Claims, conflictWith } from "./lease/conflicts.ts";
import { describeDesired } from "./kernel/describe-desired.ts";
import { Leftovers } from "./kernel/leftovers.ts";
import { openManager } from "./managers/open-manager.ts";
import type { SubnetManager } from "./managers/subnet-manager.ts";
import { Membership } from "./lease/membership.ts";
import { OverlayHost } from "./overlay-host.ts";
import type { OverlayHostOptions } from "./overlay-host-options.ts";
import { dropOverlayNetwork, ensureOverlayNetwork } from "./lease/overlay-network.ts";
import { OverlayMemory } from "./records/overlay-memory.ts";
import { OverlayWatch } from "./overlay-watch.ts";
import { ownerId } from "./records/owner-id.ts";
import { subnetFilePath } from "./kernel/subnet-file.ts";
import { Unread } from "./records/unread.ts";
import type { OverlayControl, OverlayPeerView, OverlayView, ReservationRequest } from "./view.ts";

type Shared =
  | "settings"
  | "networks"
  | "db"
  | "clock"
  | "bootId"
  | "log"
  | "randomBytes"
  | "onHealed";

export interface OverlayHostsParts extends Pick<OverlayHostOptions, Shared> {
  readonly config: Pick<Config, "stateDir" | "driftMs" | "network">;
  readonly rules: OverlayRules;
}

/** The name of flannel's single overlay in podnet. */
export const singleName = parseNetworkName("flannel");

/** The overlays that this host takes part in, or should take part in. */
export class OverlayHosts implements OverlayControl, AsyncDisposable {
  readonly #parts: OverlayHostsParts;
  readonly #overlays: Overlays;
  readonly #manager: SubnetManager;
  /** Called when this host's part in one of them is another. */
  onChange: () => void = () => {};
  /** The reasons why hosts do not know each other's pods. */
  recordTroubles: () => readonly string[] = () => [];
  readonly #unread: Unread;
  readonly #hosts = new Map<string, OverlayHost>();
  readonly #opened = new DisposableStack();
  readonly #leftovers: Leftovers;
  /** The addresses and numbers that overlays have claimed, first come, first served. */
  readonly #claims: Claims = new Map();
  readonly #membership: Membership;
  /** Hosts with a record in etcd, as far as that is known. */
  #present: ReadonlySet<OwnerId> | undefined;
  /** Whether the hosts take part yet. */
  #begun = false;

  private constructor(parts: OverlayHostsParts, manager: SubnetManager) {
    this.#parts = parts;
    this.#manager = manager;
    this.#overlays = new Overlays(parts.rules);
    this.#leftovers = new Leftovers({
      overlays: this.#overlays,
      log: parts.log,
      wanted: () => this.#wanted,
    });
    this.#unread = new Unread(parts.log, "the overlays");
    this.#membership = new Membership({
      hosts: this.#hosts,
      add: (name) => this.#addNamed(name),
      drop: (name) => this.#drop(name),
      log: parts.log,
    });
  }

  /**
   * Removes what earlier configurations left, and starts taking part. Does not wait for other hosts
   * or for the subnet manager.
   */
  static async open(parts: OverlayHostsParts): Promise<OverlayHosts> {
    const manager = await openManager(parts.settings.manager, parts.clock);
    const hosts = new OverlayHosts(parts, manager);
    try {
      await hosts.#begin();
      return hosts;
    } catch (thrown) {
      await hosts[Symbol.asyncDispose]();
      throw thrown;
    }
  }

  /** Resolves once programs on the host have been notified of every subnet of this host. */
  async notified(): Promise<void> {
    await Promise.all(Array.from(this.#hosts.values(), (host) => host.notified));
  }

  /** Where this host publishes its pods to the others; undefined where hosts do not. */
  get records(): Etcd | undefined {
    return this.#manager.records;
  }

  list(): readonly OverlayView[] {
    return Array.from(this.#hosts.values(), ({ view }) => view).toSorted((a, b) =>
      a.name < b.name ? -1 : 1,
    );
  }

  get troubles(): readonly string[] {
    return [...this.#unread.troubles, ...this.#membership.troubles, ...this.recordTroubles()];
  }

  nodes(name: string): readonly OverlayPeerView[] {
    return this.#host(name).nodes;
  }

  reaches(name: string, leaseKey: string): boolean | undefined {
    return this.#hosts.get(name)?.reaches(leaseKey);
  }

  leasedNodes(name: string): Promise<readonly OverlayPeerView[]> {
    return this.#host(name).leasedNodes();
  }

  leave(name: string, signal: AbortSignal): Promise<void> {
    return this.#host(name).leave(signal);
  }

  join(name: string, takeOver: boolean): void {
    this.#host(name).join(takeOver);
  }

  /** Sets the hosts that have a record in etcd; undefined: that is not known. */
  present(owners: ReadonlySet<OwnerId> | undefined): void {
    this.#present = owners;
    for (const host of this.#hosts.values()) host.present(owners);
  }

  diff(name: string, signal: AbortSignal): Promise<readonly string[]> {
    return this.#host(name).diff(signal);
  }

  planned(name: string): readonly string[] {
    const { desired } = this.#host(name);
    if (desired === undefined) return [];
    return [...describeDesired(desired), ...this.#parts.rules.describe(desired)];
  }

  async reservations(name: string, signal: AbortSignal): Promise<readonly Reservation[]> {
    signal.throwIfAborted();
    return this.#manager.reservations(this.#host(name).place);
  }

  reserve(name: string, request: ReservationRequest, signal: AbortSignal): Promise<Reservation> {
    return this.#manager.reserve(this.#host(name).place, request, signal);
  }

  unreserve(name: string, subnets: Subnets, signal: AbortSignal): Promise<boolean> {
    return this.#manager.unreserve(this.#host(name).place, subnets, signal);
  }

  /** Times that the kernel could not be made as wanted, by overlay. */
  failures(): readonly { readonly name: string; readonly count: number }[] {
    return Array.from(this.#hosts.values(), ({ name, failures }) => ({ name, count: failures }));
  }

  async rest(): Promise<() => void> {
    const goOn = await Promise.all(Array.from(this.#hosts.values(), (host) => host.rest()));
    return () => {
      for (const each of goOn) each();
    };
  }

  async down(): Promise<readonly string[]> {
    for (const host of this.#hosts.values()) host.untell();
    const changes = await this.#leftovers.sweep([]);
    return changes.map(overlayChangeText);
  }

  /** Ends every task. Leases, devices, routes and rules stay. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.#opened.dispose();
    await this.#membership[Symbol.asyncDispose]();
    await Promise.all(Array.from(this.#hosts.values(), (host) => host[Symbol.asyncDispose]()));
    await this.#leftovers[Symbol.asyncDispose]();
    await this.#overlays[Symbol.asyncDispose]();
    this.#manager[Symbol.dispose]();
  }

  async #begin(): Promise<void> {
    const { settings, config, db } = this.#parts;
    const { names, discover, prefix } = settings;
    // Overlays of an earlier start continue until they are known to exist no longer.
    const known = discover ? [...names, ...knownOverlays(db, singleName)] : names;
    if (names.length > 0 || discover) await this.#membership.become(known);
    else this.#add(singleName, prefix, config.network.name);
    await this.#leftovers.sweep();
    this.#opened.use(
      new OverlayWatch({
        overlays: this.#overlays,
        driftMs: config.driftMs,
        log: this.#parts.log,
        wanted: () => this.#wanted,
        look: () => {
          for (const host of this.#hosts.values()) host.look();
        },
      }),
    );
    for (const host of this.#hosts.values()) host.start();
    this.#begun = true;
    const { names: store } = this.#manager;
    if (discover && store !== undefined)
      this.#membership.follow({
        store,
        prefix,
        always: names,
        onUnread: (reasons) => this.#unread.set(reasons),
      });
  }

  async #drop(name: NetworkName): Promise<void> {
    const { networks, db, log } = this.#parts;
    const host = this.#hosts.get(name);
    this.#hosts.delete(name);
    await host?.[Symbol.asyncDispose]();
    try {
      await dropOverlayNetwork(name, networks, new OverlayMemory(db, name, log));
    } catch (err) {
      log.error({ overlay: name, err }, "Failed to remove the network of an overlay that is gone");
    }
  }

  /** One of several, with a network of its name. */
  async #addNamed(name: NetworkName): Promise<void> {
    const { networks, db, settings, log } = this.#parts;
    await ensureOverlayNetwork(name, networks, new OverlayMemory(db, name, log));
    const host = this.#add(name, networkPrefix(settings.prefix, name), name, name);
    if (this.#begun) host.start();
  }

  #add(
    name: NetworkName,
    prefix: Prefix,
    network: NetworkName,
    several?: NetworkName,
  ): OverlayHost {
    const { settings, config, ...parts } = this.#parts;
    const host: OverlayHost = new OverlayHost({
      ...parts,
      name,
      prefix,
      network,
      subnetFile: subnetFilePath(settings, several),
      settings,
      owner: ownerId(config.stateDir),
      manager: this.#manager,
      overlays: this.#overlays,
      conflict: (wanted) => conflictWith(wanted, this.#claims, name),
      onChange: () => this.onChange(),
      onLeft: () => {
        this.#claims.delete(name);
        this.#leftovers.soon();
      },
    });
    this.#hosts.set(name, host);
    host.present(this.#present);
    return host;
  }

  /** The desired state of the kernel for all overlays, as far as it is known. */
  get #wanted(): readonly OverlayDesired[] {
    const known = Array.from(this.#hosts.values(), ({ desired }) => desired);
    return known.filter((desired) => desired !== undefined);
  }

  #host(name: string): OverlayHost {
    const host = this.#hosts.get(name);
    if (host !== undefined) return host;
    throw new PodnetError("OVERLAY_NOT_FOUND", `This host is in no overlay called "${name}"`, {
      field: "overlay",
      hint: "See podnet overlay list",
    });
  }
}
