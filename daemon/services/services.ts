import type { BackendChange, ServiceSpec } from "../../api/service-spec.ts";
import type { Ip } from "../../core/address.ts";
import type { Clock } from "../../core/clock.ts";
import { PodnetError } from "../../core/errors.ts";
import { printable } from "../../core/names.ts";
import { didYouMean } from "../../core/nearest.ts";
import type { Log } from "../../linux/log.ts";
import type { HostNetwork } from "../../network/bridge/host-network.ts";
import type { Inspection, InspectOptions } from "../../network/bridge/inspect.ts";
import type { HostObservations } from "../../network/bridge/observations.ts";
import type { Overlap } from "../../network/bridge/overlap.ts";
import type { PluggedFragment } from "../../network/model/desired.ts";
import type { ServiceDesired } from "../../network/model/service.ts";
import type { Config } from "../config/config.ts";
import type { NetworkDefinition } from "../config/network-definition.ts";
import type { Journal } from "../events/journal.ts";
import { KeyedLock } from "../reconcile/keyed-lock.ts";
import type { Database } from "../store/database.ts";
import { changeBackends } from "./change-backends.ts";
import {
  type Candidate,
  checkedPort,
  desiredService,
  type Endpoint,
  endpointsOf,
  listCandidates,
  noticesOf,
} from "./endpoints.ts";
import { type Checked, HealthChecks, type HealthChecksParts } from "./health/health-checks.ts";
import { HealthJournal } from "./health/health-journal.ts";
import { unasked } from "./health/verdict.ts";
import { planService } from "./plan-service.ts";
import { ServiceRules } from "./service-rules.ts";
import type { RecordsChange, SharingHosts } from "./shared/hosts.ts";
import { OverlayServices } from "./shared/overlay-services.ts";
import {
  deleteService,
  deleteServices,
  getService,
  hasServices,
  listServices,
  putService,
  type ServiceDefinition,
} from "./store.ts";

export interface ServicesParts {
  readonly db: Database;
  readonly config: Pick<Config, "serviceCidrs" | "disableIptables">;
  readonly network: Pick<HostNetwork, "apply" | "inspectServices" | "describeService"> & {
    readonly observe: Pick<HostObservations, "overlapsOf">;
  };
  readonly networks: { list(): readonly NetworkDefinition[] };
  /** Pods and containers of the host. */
  readonly holders: () => readonly PluggedFragment[];
  readonly journal: Journal;
  readonly clock: Clock;
  readonly log: Log;
  /** How a backend is asked; by a connection unless given. */
  readonly probe?: HealthChecksParts["probe"];
}

/** A service with where it leads to now. */
export interface ServiceNow extends ServiceDefinition {
  readonly endpoints: readonly Endpoint[];
  readonly notices: readonly string[];
}

/**
 * The node's services. A change is stored first, and in force when its call answers. The rules
 * follow the pods and networks there are; what the host refuses is tried again.
 */
export class Services implements AsyncDisposable {
  readonly #parts: ServicesParts;
  readonly #rules: ServiceRules;
  readonly #health: HealthChecks;
  readonly #healthJournal: HealthJournal;
  /** By name: what is undone must not be what another call has changed since. */
  readonly #changes = new KeyedLock<string>();
  readonly #overlay: OverlayServices;

  constructor(parts: ServicesParts) {
    this.#parts = parts;
    const { db, network, journal, log } = parts;
    this.#rules = new ServiceRules({
      network,
      journal,
      log,
      desired: () => this.desired(),
      pods: parts.holders,
      hasAny: () => hasServices(db),
      written: () => {
        this.#health.follow(this.#checked());
        this.#healthJournal.keep(new Set(listServices(db).map(({ name }) => name)));
        this.#publishHealth();
      },
    });
    this.#healthJournal = new HealthJournal(parts);
    this.#health = new HealthChecks({
      log,
      turned: (backend, verdict) => this.#healthJournal.turned(backend, verdict),
      changed: () => {
        this.#rules.request();
        this.#publishHealth();
      },
      ...(parts.probe && { probe: parts.probe }),
    });
    this.#overlay = new OverlayServices({
      db,
      log,
      changes: this.#changes,
      find: (name) => getService(db, name),
      list: () => listServices(db),
      plan: async (spec, before) => this.#planFor(spec, before, await this.#overlaps()),
      keep: (definition) => {
        journal.transact("follow service", () => putService(db, definition, parts.clock.now()));
        this.#rules.request();
      },
      drop: (name) => {
        journal.transact("drop service", () => deleteService(db, name));
        this.#rules.request();
      },
      look: () => this.#rules.look(),
    });
  }

  /**
   * Serves the services of an overlay's hosts, and shares this host's with them, from now on.
   * Without hosts those that were shared are no more.
   */
  share(hosts: SharingHosts | undefined): void {
    this.#overlay.share(hosts);
  }

  /** Records of other hosts have changed, or this host's part in an overlay. */
  othersChanged(change?: RecordsChange): void {
    this.#overlay.othersChanged(change);
  }

  /** The services of an overlay's hosts that this one does not serve, a line each. */
  get troubles(): readonly string[] {
    return this.#overlay.troubles;
  }

  /** How often backends became healthy or unhealthy, since the start. */
  get healthChanges(): HealthJournal["counts"] {
    return this.#healthJournal.counts;
  }

  /** All, by name. */
  list(): readonly ServiceNow[] {
    const candidates = listCandidates(this.#parts.db);
    return listServices(this.#parts.db).map((each) => this.#now(each, candidates));
  }

  /** Throws `SERVICE_NOT_FOUND`. */
  get(name: string): ServiceNow {
    return this.#now(this.#find(name));
  }

  /** What a service would be, and its rules, a line each. Throws as `create` and `update` do. */
  async plan(
    spec: ServiceSpec,
    isNew: boolean,
  ): Promise<{ service: ServiceNow; rules: readonly string[] }> {
    const service = this.#now(this.#plan(spec, isNew, await this.#overlaps()));
    const { networks, network } = this.#parts;
    const desired = desiredService(service, service.endpoints, networks.list());
    return { service, rules: desired === undefined ? [] : network.describeService(desired) };
  }

  /**
   * Makes a service. Throws `NAME_IN_USE`, `UNSUPPORTED`, as `planService` does, and what the host
   * refuses: then nothing is left of it.
   */
  async create(spec: ServiceSpec): Promise<ServiceNow> {
    const { db } = this.#parts;
    const overlaps = await this.#overlaps();
    return this.#changes.run(spec.name, async () => {
      const planned = this.#plan(spec, true, overlaps);
      const shares = planned.scope === "overlay";
      const definition = shares ? await this.#publish(planned, undefined) : planned;
      await this.#store("service", definition, () => deleteService(db, definition.name)).catch(
        async (thrown: unknown) => {
          if (shares) await this.#unpublish(() => this.#overlay.withdraw(definition));
          throw thrown;
        },
      );
      return this.#now(definition);
    });
  }

  /** Changes a service to the spec. Throws as `create`, and `SERVICE_NOT_FOUND`. */
  async update(spec: ServiceSpec): Promise<ServiceNow> {
    const overlaps = await this.#overlaps();
    return this.#change(spec.name, () => this.#plan(spec, false, overlaps));
  }

  /** Changes single backends. Throws as `update`. */
  changeBackends(name: string, change: BackendChange): Promise<ServiceNow> {
    return this.#change(name, (before) => this.#plan(changeBackends(before, change), false, []));
  }

  #change(
    name: string,
    plan: (before: ServiceDefinition) => ServiceDefinition,
  ): Promise<ServiceNow> {
    const { db, clock } = this.#parts;
    return this.#changes.run(name, async () => {
      for (let tries = 1; ; tries++) {
        const before = this.#find(name);
        const planned = plan(before);
        const shares = before.shared !== undefined;
        const definition = shares ? await this.#overlay.publish(planned, before) : planned;
        // (Another host was faster: what it has made of the service is changed.)
        if (definition === undefined && tries < mostTries) continue;
        if (definition === undefined) throw changing(name);
        await this.#store("update service", definition, () => {
          // (Unless `forget` has taken all away meanwhile.)
          if (getService(db, before.name) !== undefined) putService(db, before, clock.now());
        }).catch(async (thrown: unknown) => {
          if (shares) await this.#unpublish(() => this.#overlay.publish(before, definition));
          throw thrown;
        });
        return this.#now(definition);
      }
    });
  }

  async #publish(
    planned: ServiceDefinition,
    before: ServiceDefinition | undefined,
  ): Promise<ServiceDefinition> {
    const definition = await this.#overlay.publish(planned, before);
    if (definition === undefined) throw changing(planned.name);
    return definition;
  }

  /** Takes back what etcd has been given. What fails leaves the change to the overlay's hosts. */
  async #unpublish(undo: () => Promise<unknown>): Promise<void> {
    try {
      await undo();
    } catch (err) {
      this.#parts.log.warn({ err }, "Failed to undo the change of a service in etcd");
    }
  }

  /** Whether there was one. What an earlier change could not do is tried again in either case. */
  delete(name: string): Promise<boolean> {
    const { db, journal } = this.#parts;
    return this.#changes.run(name, async () => {
      const row = getService(db, name);
      const existed = row !== undefined;
      if (row?.shared !== undefined) await this.#overlay.withdraw(row);
      if (existed) journal.transact("delete service", () => deleteService(db, name));
      else if (!this.#rules.failed) return false;
      await this.#rules.write();
      return existed;
    });
  }

  /** Writes the rules, after a network has changed. */
  async changed(): Promise<void> {
    if (hasServices(this.#parts.db)) await this.#rules.write();
    this.#overlay.othersChanged();
  }

  /** Forgets all services; their rules go with everything else. */
  forget(): void {
    const { db, journal } = this.#parts;
    if (hasServices(db)) journal.transact("delete services", () => deleteServices(db));
  }

  /** The services as the host is to have them. */
  desired(): readonly ServiceDesired[] {
    const { db, networks, config } = this.#parts;
    if (config.disableIptables || !hasServices(db)) return [];
    const [candidates, all] = [listCandidates(db), networks.list()];
    return listServices(db).flatMap(
      (each) => desiredService(each, this.#endpointsOf(each, candidates, all), all) ?? [],
    );
  }

  /** Looks for drift of the rules, and repairs it if requested. */
  inspect(heal: InspectOptions["heal"], signal: AbortSignal): Promise<Inspection> {
    return this.#parts.network.inspectServices(() => this.desired(), heal, signal);
  }

  /** The rules that the host is to have, a line each. */
  describe(): readonly string[] {
    return this.desired().flatMap((each) => this.#parts.network.describeService(each));
  }

  /** After a start, once pods and containers are known. */
  start(): void {
    this.#rules.start();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#overlay[Symbol.asyncDispose]();
    await this.#rules[Symbol.asyncDispose]();
    this.#health[Symbol.dispose]();
  }

  #find(name: string): ServiceDefinition {
    const found = getService(this.#parts.db, name);
    if (found !== undefined) return found;
    const names = listServices(this.#parts.db).map((service) => service.name);
    throw new PodnetError("SERVICE_NOT_FOUND", `There is no service "${printable(name)}"`, {
      field: "name",
      hint: `${didYouMean(name, names)}See podnet service list`,
    });
  }

  #now(definition: ServiceDefinition, candidates = listCandidates(this.#parts.db)): ServiceNow {
    const networks = this.#parts.networks.list();
    const endpoints = this.#endpointsOf(definition, candidates, networks);
    const overlay = this.#overlay.hosts?.overlayOf(definition.network);
    const notices = noticesOf(definition, endpoints, networks, overlay);
    return { ...definition, endpoints, notices };
  }

  /** The backends that are there, with what is known of their health. */
  #endpointsOf(
    definition: ServiceDefinition,
    local: readonly Candidate[],
    networks: readonly NetworkDefinition[],
  ): readonly Endpoint[] {
    const candidates = this.#overlay.candidatesOf(definition, local);
    const endpoints = endpointsOf(definition, candidates, networks);
    const { check, network } = definition;
    if (check === undefined && endpoints.every(({ host }) => host === undefined)) return endpoints;
    const silent = new Map<string, boolean>();
    const isSilent = (host: string): boolean => {
      const known = silent.get(host) ?? this.#overlay.hosts?.isSilent(host, network) ?? false;
      silent.set(host, known);
      return known;
    };
    return endpoints.map((each): Endpoint => {
      const [checked] = checkedOf(definition, each);
      if (each.host !== undefined && isSilent(each.host.id))
        return { ...each, health: "unhealthy", healthReason: "its host does not answer" };
      if (check === undefined) return each;
      if (each.host !== undefined) return this.#remoteHealth(each, each.host.id, checked);
      const { asked, healthy, why } = (checked && this.#health.of(checked)) ?? unasked;
      const health = healthy ? (asked ? "healthy" : "unknown") : "unhealthy";
      return { ...each, health, ...(why !== undefined && { healthReason: why }) };
    });
  }

  /** Each host asks its own pods, and says what it found. */
  #remoteHealth(endpoint: Endpoint, host: string, checked: Checked | undefined): Endpoint {
    const said = checked && this.#overlay.hosts?.healthOf(host, checked);
    if (said === undefined) return { ...endpoint, health: "unknown" };
    return said.healthy
      ? { ...endpoint, health: "healthy" }
      : { ...endpoint, health: "unhealthy", healthReason: said.why };
  }

  /** Publishes to the other hosts which pods of this one do not serve. */
  #publishHealth(): void {
    const { hosts } = this.#overlay;
    if (hosts === undefined) return;
    const { db, networks } = this.#parts;
    const shared = listServices(db).filter(
      ({ shared: mark, check }) => mark !== undefined && check !== undefined,
    );
    if (shared.length === 0) return hosts.publishHealth(undefined);
    const [candidates, all] = [listCandidates(db), networks.list()];
    const pods = candidates.filter(({ kind }) => kind === "pod");
    const unhealthy = shared.flatMap((service) =>
      endpointsOf(service, pods, all).flatMap((each) =>
        (each.pod === undefined ? [] : checkedOf(service, each)).flatMap((checked) => {
          const verdict = this.#health.of(checked);
          if (verdict === undefined || verdict.healthy) return [];
          const { address, port } = checked;
          return [{ service: service.name, address, port, why: verdict.why ?? "" }];
        }),
      ),
    );
    hosts.publishHealth(unhealthy);
  }

  /** The backends that are to be asked. */
  #checked(): readonly Checked[] {
    const { db, networks } = this.#parts;
    const some = listServices(db).filter(({ check }) => check !== undefined);
    if (some.length === 0) return [];
    const [candidates, all] = [listCandidates(db), networks.list()];
    return some.flatMap((service) =>
      endpointsOf(service, this.#overlay.candidatesOf(service, candidates), all)
        .filter(({ host }) => host === undefined)
        .flatMap((each) => checkedOf(service, each)),
    );
  }

  #plan(spec: ServiceSpec, isNew: boolean, overlaps: readonly Overlap[]): ServiceDefinition {
    const { db, config } = this.#parts;
    if (config.disableIptables)
      throw new PodnetError("UNSUPPORTED", "Services need rules, which disable_iptables forbids", {
        hint: "Remove disable_iptables from podnetd's configuration, and restart it",
      });
    const all = listServices(db);
    const before = all.find(({ name }) => name === spec.name);
    if (isNew && before !== undefined)
      throw new PodnetError("NAME_IN_USE", `There is a service "${spec.name}" already`, {
        field: "name",
        hint: `Choose another name, or change it: podnet service update ${spec.name}`,
        details: { holder: spec.name },
      });
    if (before !== undefined && before.network !== spec.network)
      throw new PodnetError("INVALID_ARGUMENT", `A service stays on network "${before.network}"`, {
        field: "network",
        hint: "Leave it out, or make another service",
      });
    if (before !== undefined && spec.scope !== undefined && before.shared === undefined)
      throw new PodnetError("INVALID_ARGUMENT", "A service of one host stays one of this host", {
        field: "scope",
        hint: `Delete it, and make it with the overlay's scope: podnet service delete ${before.name}`,
      });
    return this.#planFor(
      before?.shared === undefined ? spec : { ...spec, scope: "overlay" },
      before,
      overlaps,
    );
  }

  #planFor(
    spec: ServiceSpec,
    before: ServiceDefinition | undefined,
    overlaps: readonly Overlap[],
  ): ServiceDefinition {
    const { db, config, networks } = this.#parts;
    return planService(spec, before, {
      networks: networks.list(),
      others: listServices(db).filter(({ name }) => name !== spec.name),
      cidrs: config.serviceCidrs,
      overlaps,
      holderOf: (address) => this.#holderOf(address),
    });
  }

  /** Pods may have addresses that are in no network's subnet. */
  #holderOf(address: Ip): string | undefined {
    const holder = listCandidates(this.#parts.db).find(({ addresses }) =>
      addresses.some(({ ip }) => ip === address),
    );
    return holder && `${holder.kind} "${holder.shown}"`;
  }

  /** What the host has of the addresses of services. */
  async #overlaps(): Promise<readonly Overlap[]> {
    const { config, network } = this.#parts;
    return config.serviceCidrs.length === 0 ? [] : network.observe.overlapsOf(config.serviceCidrs);
  }

  /** The row first, in a commit named `what`. `undo` writes the row there was before. */
  async #store(what: string, definition: ServiceDefinition, undo: () => void): Promise<void> {
    const { db, journal, clock, log } = this.#parts;
    journal.transact(what, () => putService(db, definition, clock.now()));
    try {
      await this.#rules.write();
    } catch (thrown) {
      try {
        journal.transact("undo service", undo);
      } catch (err) {
        // What failed first is the answer; the row stays, and so its rules are tried again.
        log.warn({ err, service: definition.name }, "Failed to undo the change of a service");
      }
      this.#rules.request();
      throw thrown;
    }
  }
}

/** Times that a change is tried while other hosts change the same service. */
const mostTries = 5;

const changing = (name: string): PodnetError =>
  new PodnetError("ETCD_FAILED", `Other hosts change service "${name}" at the same time`, {
    hint: "Look at what it is now, and try again: podnet service inspect",
  });

/** A backend as it is asked; none of a service without a check. */
const checkedOf = (service: ServiceDefinition, endpoint: Endpoint): readonly Checked[] => {
  const { name, check } = service;
  const port = checkedPort(service, endpoint);
  return check === undefined || port === undefined
    ? []
    : [{ service: name, address: endpoint.address, port, check }];
};
