import { setTimeout as delay } from "node:timers/promises";
import type { ServiceSpec } from "../../api/service-spec.ts";
import type { Ip } from "../../core/address.ts";
import type { Clock } from "../../core/clock.ts";
import { isPodnetError, PodnetError } from "../../core/errors.ts";
import { guard } from "../../core/guard.ts";
import { printable } from "../../core/names.ts";
import type { Log } from "../../linux/log.ts";
import type { HostNetwork } from "../../network/bridge/host-network.ts";
import type { Inspection, InspectOptions } from "../../network/bridge/inspect.ts";
import type { ServiceDesired } from "../../network/model/service.ts";
import type { Config } from "../config/config.ts";
import type { NetworkDefinition } from "../config/network-definition.ts";
import type { Journal } from "../events/journal.ts";
import { WorkQueue } from "../reconcile/work-queue.ts";
import type { Database } from "../store/database.ts";
import {
  desiredService,
  type Endpoint,
  endpointsOf,
  listCandidates,
  noticesOf,
} from "./endpoints.ts";
import { planService } from "./plan-service.ts";
import {
  deleteService,
  deleteServices,
  getService,
  hasServices,
  listServices,
  putService,
  type ServiceDefinition,
} from "./store.ts";

/** Milliseconds in which changes of several pods are one change of the rules. */
const gatherMs = 20;
const changeMs = 60_000;
/** Milliseconds until pods are followed again after a failure. */
const followAgainMs = 1000;

export interface ServicesParts {
  readonly db: Database;
  readonly config: Pick<Config, "serviceCidrs" | "disableIptables">;
  readonly network: Pick<HostNetwork, "apply" | "inspectServices" | "describeService">;
  readonly networks: { list(): readonly NetworkDefinition[] };
  readonly journal: Journal;
  readonly clock: Clock;
  readonly log: Log;
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
  readonly #queue: WorkQueue<"rules">;
  readonly #ended = new AbortController();
  /** The rules as they were last written, as text. */
  #written: string | undefined;

  constructor(parts: ServicesParts) {
    this.#parts = parts;
    const { log } = parts;
    this.#queue = new WorkQueue({
      name: "services",
      backoff: { firstMs: 1000, longestMs: 30_000 },
      onDegraded: (_, { error }) =>
        log.warn({ err: error }, "Failed to write the rules of services; retrying"),
      onRecovered: () => log.info({}, "The rules of services are in force again"),
    });
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
  plan(spec: ServiceSpec, isNew: boolean): { service: ServiceNow; rules: readonly string[] } {
    const service = this.#now(this.#plan(spec, isNew));
    const { networks, network } = this.#parts;
    const desired = desiredService(service, service.endpoints, networks.list());
    return { service, rules: desired === undefined ? [] : network.describeService(desired) };
  }

  /**
   * Makes a service. Throws `NAME_IN_USE`, `UNSUPPORTED`, as `planService` does, and what the host
   * refuses: then nothing is left of it.
   */
  async create(spec: ServiceSpec): Promise<ServiceNow> {
    const definition = this.#plan(spec, true);
    await this.#store(definition, () => deleteService(this.#parts.db, definition.name));
    return this.#now(definition);
  }

  /** Changes a service to the spec. Throws as `create`, and `SERVICE_NOT_FOUND`. */
  async update(spec: ServiceSpec): Promise<ServiceNow> {
    const { db, clock } = this.#parts;
    const before = this.#find(spec.name);
    const definition = this.#plan(spec, false);
    await this.#store(definition, () => putService(db, before, clock.now()));
    return this.#now(definition);
  }

  /** Whether there was one. What an earlier change could not do is tried again in either case. */
  async delete(name: string): Promise<boolean> {
    const { db, journal } = this.#parts;
    const existed = getService(db, name) !== undefined;
    if (existed) journal.transact("delete service", () => deleteService(db, name));
    else if (this.#queue.degraded().next().done === true) return false;
    await this.#queue.run("rules", () => this.#write());
    return existed;
  }

  /** Writes the rules, after a network has changed. */
  async changed(): Promise<void> {
    if (hasServices(this.#parts.db)) await this.#queue.run("rules", () => this.#write());
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
      (each) => desiredService(each, endpointsOf(each, candidates, all), all) ?? [],
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
    this.#queue.add("rules", () => this.#write());
    void guard("services", () => this.#follow());
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#ended.abort();
    await this.#queue[Symbol.asyncDispose]();
  }

  #find(name: string): ServiceDefinition {
    const found = getService(this.#parts.db, name);
    if (found !== undefined) return found;
    throw new PodnetError("SERVICE_NOT_FOUND", `There is no service "${printable(name)}"`, {
      field: "name",
      hint: "See podnet service list",
    });
  }

  #now(definition: ServiceDefinition, candidates = listCandidates(this.#parts.db)): ServiceNow {
    const networks = this.#parts.networks.list();
    const endpoints = endpointsOf(definition, candidates, networks);
    return { ...definition, endpoints, notices: noticesOf(definition, endpoints, networks) };
  }

  #plan(spec: ServiceSpec, isNew: boolean): ServiceDefinition {
    const { db, config, networks } = this.#parts;
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
    return planService(spec, before, {
      networks: networks.list(),
      others: all.filter(({ name }) => name !== spec.name),
      cidrs: config.serviceCidrs,
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

  /** The row first. `undo` writes the row there was before. */
  async #store(definition: ServiceDefinition, undo: () => void): Promise<void> {
    const { db, journal, clock } = this.#parts;
    journal.transact("service", () => putService(db, definition, clock.now()));
    try {
      await this.#queue.run("rules", () => this.#write());
    } catch (thrown) {
      journal.transact("undo service", undo);
      this.#queue.add("rules", () => this.#write());
      throw thrown;
    }
  }

  async #write(): Promise<void> {
    const { network } = this.#parts;
    const signal = AbortSignal.any([this.#ended.signal, AbortSignal.timeout(changeMs)]);
    let desired: readonly ServiceDesired[] = [];
    this.#written = undefined;
    await network.apply({ kind: "services", now: () => (desired = this.desired()) }, signal);
    this.#written = JSON.stringify(desired);
  }

  /** An event of any pod may have changed an address, a label or whether it runs. */
  async #follow(): Promise<void> {
    const { journal, log, db } = this.#parts;
    const { signal } = this.#ended;
    const isOther = (): boolean => JSON.stringify(this.desired()) !== this.#written;
    const write = async (): Promise<void> => {
      if (isOther()) await this.#write();
    };
    while (!signal.aborted) {
      try {
        for await (const _event of journal.watch(journal.newest, signal))
          if (hasServices(db)) this.#queue.add("rules", write, gatherMs);
      } catch (thrown) {
        // One that fell too far behind finds in the rows what it has missed.
        if (!isPodnetError(thrown, "EVENTS_LOST")) {
          log.warn({ err: thrown }, "Failed to follow pods for services; retrying");
          await delay(followAgainMs, undefined, { signal }).catch(() => {});
        }
        this.#queue.add("rules", () => this.#write());
      }
    }
  }
}
