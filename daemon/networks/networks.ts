import type { NetworkSpec } from "../../api/network-spec.ts";
import { type Ip, ipOf } from "../../core/address.ts";
import type { Clock } from "../../core/clock.ts";
import { PodnetError } from "../../core/errors.ts";
import { type NetworkName, printable } from "../../core/names.ts";
import type { Log } from "../../linux/log.ts";
import { changesText } from "../../network/change.ts";
import type { NetworkFragment, PodFragment } from "../../network/desired.ts";
import type { HostNetwork } from "../../network/ensure.ts";
import { KeyedLock } from "../keyed-lock.ts";
import type { Resolvers } from "../dns/resolvers.ts";
import type { KnownNetworks } from "../pod/gather-networks.ts";
import type { Addresses } from "../pod/addresses.ts";
import type { Database } from "../store/database.ts";
import * as rows from "../store/networks.ts";
import { deleteRestingOutside } from "../store/leases.ts";
import { type NetworkDefinition, sameSubnets, unusedFamilies } from "./definition.ts";
import { type FirewallConfig, fragmentBetween, networkFragment } from "./network-fragment.ts";
import { overlapsOfNetworks, planNetwork, refuseOverlaps } from "./plan-network.ts";
import { ToldServers } from "./told-servers.ts";
import { configuredError, refuseInUse, refuseUpdate } from "./refuse-update.ts";

/** Networks of a node: each costs some ten rules. */
const most = 256;
/** Longest the host may take for a network, milliseconds. */
const hostMs = 60_000;

export interface NetworksParts {
  readonly db: Database;
  readonly config: FirewallConfig;
  readonly host: HostNetwork;
  readonly addresses: Addresses;
  readonly clock: Clock;
  readonly log: Log;
  /** The configured one. */
  readonly configured: NetworkName;
  /** False where the driver brings the network: then there is nothing on the host. */
  readonly onHost: boolean;
  /** Brings the ports and name servers of pods up to what their network is now. */
  refit(name: NetworkName): Promise<void>;
  /** Answers names for pods. */
  readonly resolvers: Pick<Resolvers, "settle" | "answers" | "isWanted" | "domain">;
  /** What that would make of ports. */
  refitPlan(definition: NetworkDefinition): readonly PodFragment[];
  /** Whom that would tell of which name servers, with these networks. */
  refitText(name: NetworkName, networks: KnownNetworks): readonly string[];
}

interface Entry {
  /** As pods are planned for it. */
  definition: NetworkDefinition;
  /** As the host is to have it: another one while it is being changed. */
  wanted: NetworkDefinition;
  /** Of which something may be left on the host: a change to them could not be taken back. */
  left: readonly NetworkDefinition[];
}

/** How a network was asked for. */
export interface Asked {
  /** Also where its subnets overlap with what is there. */
  readonly force: boolean;
}

/**
 * The networks of this node. They are changed one at a time: the row first, then the host, and back when the host
 * refuses. What a crash cut short the next start finishes or undoes (`settle.ts`).
 */
export class Networks implements KnownNetworks {
  readonly #parts: NetworksParts;
  readonly #entries = new Map<NetworkName, Entry>();
  readonly #lock = new KeyedLock<"networks">();
  /** Whose subnets are being exchanged. */
  readonly #changing = new Set<string>();
  readonly #told: ToldServers;

  /** Takes the networks as they were settled. */
  constructor(parts: NetworksParts, settled: readonly NetworkDefinition[]) {
    this.#parts = parts;
    this.#told = new ToldServers(parts.db);
    for (const definition of settled) {
      const row = rows.getNetwork(parts.db, definition.name);
      // The host has refused to take that change back.
      this.#enter(definition, row?.before === undefined ? [] : [row.definition]);
    }
  }

  #enter(definition: NetworkDefinition, left: readonly NetworkDefinition[] = []): void {
    this.#entries.set(definition.name, { definition, wanted: definition, left });
  }

  list(): NetworkDefinition[] {
    return Array.from(this.#entries.values(), ({ definition }) => definition).toSorted((a, b) =>
      a.name < b.name ? -1 : 1,
    );
  }

  /** Throws `NETWORK_NOT_FOUND`. */
  find(name: string): NetworkDefinition {
    return this.#find(name).definition;
  }

  #find(name: string): Entry {
    const entry = this.#entries.get(name as NetworkName);
    if (entry !== undefined) return entry;
    throw new PodnetError("NETWORK_NOT_FOUND", `There is no network "${printable(name)}"`, {
      field: "name",
      hint: `Networks are: ${this.list()
        .map((each) => each.name)
        .join(", ")}`,
    });
  }

  isConfigured({ name }: NetworkDefinition): boolean {
    return name === this.#parts.configured;
  }

  domainOf(name: NetworkName, told: readonly Ip[]): string | undefined {
    const { resolvers } = this.#parts;
    const network = this.#entries.get(name)?.definition;
    const isTold =
      network?.subnets.some(({ gateway }) => told.includes(ipOf(gateway))) === true &&
      this.isResolving(network);
    return isTold || resolvers.answers(name) ? resolvers.domain : undefined;
  }

  /** The networks as they are, but for one that is to be this. */
  #with(network: NetworkDefinition): KnownNetworks {
    return {
      list: () => this.list().map((each) => (each.name === network.name ? network : each)),
      refuseChanging: () => {},
      domainOf: (name, told) => {
        if (name !== network.name) return this.domainOf(name, told);
        return this.#domainOn(network);
      },
    };
  }

  /** After a start: guests follow where their networks say otherwise of name servers than they were told. */
  async followServers(): Promise<void> {
    for (const name of this.#told.outdated(this.list(), this.#domainOn))
      await this.#parts.refit(name);
    this.#told.note(this.list(), this.#domainOn);
  }

  readonly #domainOn = (network: NetworkDefinition): string | undefined =>
    this.isResolving(network) ? this.#parts.resolvers.domain : undefined;

  /** Whether pods of a network are to ask its gateways for names. */
  isResolving(network: NetworkDefinition): boolean {
    return this.#parts.onHost && this.#parts.resolvers.isWanted(network);
  }

  /** Lets pods of all networks ask for names, where that is so; what cannot be had is told of and tried again. */
  answerNames(): Promise<void> {
    return this.#parts.resolvers.settle(() => (this.#parts.onHost ? this.list() : []));
  }

  refuseChanging(names: readonly string[]): void {
    const name = names.find((each) => this.#changing.has(each));
    if (name === undefined) return;
    throw new PodnetError("WRONG_STATE", `Network "${name}" is being given other subnets`, {
      hint: "Ask again in a moment",
      details: { network: name },
    });
  }

  /** What the host is to have of networks. */
  fragments(): NetworkFragment[] {
    if (!this.#parts.onHost) return [];
    return Array.from(this.#entries.values(), (entry) => this.#fragmentOf(entry));
  }

  /** The same of one; undefined when it is no more. */
  fragment(name: string): NetworkFragment | undefined {
    const entry = this.#entries.get(name as NetworkName);
    return entry === undefined || !this.#parts.onHost ? undefined : this.#fragmentOf(entry);
  }

  #fragmentOf({ wanted, left }: Entry): NetworkFragment {
    return fragmentBetween(left, wanted, this.#parts.config);
  }

  #fragment(definition: NetworkDefinition): NetworkFragment {
    return networkFragment(definition, this.#parts.config);
  }

  /** What a create would do to the host, a line each. Takes nothing. Throws as `create` does before it begins. */
  async planCreate(spec: NetworkSpec, asked: Asked): Promise<readonly string[]> {
    const definition = await this.#planNew(spec, asked);
    const fragment = this.#fragment(definition);
    const changes = await this.#parts.host.diff(fragment, AbortSignal.timeout(hostMs));
    return [...changesText(changes), ...this.#namesText(definition)];
  }

  /**
   * Makes a network. Throws `NAME_IN_USE`, `NETWORK_OVERLAP`, `BRIDGE_CONFLICT`, `LIMIT_REACHED`, `ADDRESS_*`, and what
   * the host says: then nothing is left of it.
   */
  create(spec: NetworkSpec, asked: Asked): Promise<NetworkDefinition> {
    return this.#lock.run("networks", async () => {
      const definition = await this.#planNew(spec, asked);
      const { db, addresses, clock, host } = this.#parts;
      const createdMs = clock.now();
      // One that was cut short and not undone has the name still.
      if (rows.getNetwork(db, definition.name) !== undefined) await this.#takeAway(definition.name);
      const place = addresses.prepare(definition);
      rows.putNetwork(db, definition, { state: "creating", configured: false, createdMs });
      try {
        await host.ensure(this.#fragment(definition), AbortSignal.timeout(hostMs));
        rows.settleNetwork(db, definition.name);
      } catch (thrown) {
        await this.#tidy(definition.name, () => this.#takeAway(definition.name));
        throw thrown;
      }
      place();
      this.#enter(definition);
      await this.answerNames();
      await this.#tidy(definition.name, async () => this.#told.note(this.list(), this.#domainOn));
      return definition;
    });
  }

  async #planNew(spec: NetworkSpec, { force }: Asked): Promise<NetworkDefinition> {
    this.#refuseElsewhere();
    const others = this.list();
    const holder = others.find(({ name }) => name === spec.name);
    if (holder !== undefined)
      throw new PodnetError("NAME_IN_USE", `There is a network "${spec.name}" already`, {
        field: "name",
        hint: `Choose another name, or change it: podnet network update ${spec.name}`,
        details: { holder: holder.name },
      });
    if (others.length >= most)
      throw new PodnetError("LIMIT_REACHED", `A node has at most ${most} networks`, {
        hint: "Delete one that nobody uses: podnet network delete",
        details: { limit: most },
      });
    const definition = planNetwork(spec, others, undefined, force);
    if (!force) await this.#refuseOverlaps(definition, others);
    return definition;
  }

  async #refuseOverlaps(
    definition: NetworkDefinition,
    others: readonly NetworkDefinition[],
  ): Promise<void> {
    const cidrs = definition.subnets.map(({ cidr }) => cidr);
    const ours = overlapsOfNetworks(cidrs, others);
    refuseOverlaps(cidrs, ours);
    refuseOverlaps(cidrs, await this.#parts.host.overlaps(this.#fragment(definition)));
  }

  #refuseElsewhere(): void {
    if (this.#parts.onHost) return;
    throw new PodnetError("UNSUPPORTED", "The driver brings its own network", {
      hint: "Networks can be made with a driver that leaves the host's network to podnet",
    });
  }

  /** What an update would change, a line each. Takes nothing. */
  async planUpdate(spec: NetworkSpec, asked: Asked): Promise<readonly string[]> {
    const { entry, before, definition } = await this.#planChange(spec, asked);
    const { host } = this.#parts;
    const changes = await host.diff(
      fragmentBetween([before, ...entry.left], definition, this.#parts.config),
      AbortSignal.timeout(hostMs),
    );
    const ports = this.#parts.refitPlan(definition);
    const names = this.#namesText(definition);
    const sameNames = this.#namesText(before).join() === names.join();
    return [
      ...changesText(changes),
      ...(sameNames ? [] : names.length > 0 ? names : ["names no more"]),
      ...ports.flatMap((each) => [...host.describe(each)]),
      ...this.#parts.refitText(spec.name, this.#with(definition)),
    ];
  }

  /**
   * Makes a network what the spec says. Throws `NETWORK_NOT_FOUND`, `NETWORK_IN_USE`, `MTU_OUT_OF_RANGE`,
   * `NETWORK_OVERLAP`, `ADDRESS_*`, `WRONG_STATE`, and what the host says: then it is as it was.
   */
  update(spec: NetworkSpec, asked: Asked): Promise<NetworkDefinition> {
    return this.#lock.run("networks", async () => {
      const { entry, before, definition } = await this.#planChange(spec, asked);
      const { db, addresses, host } = this.#parts;
      const { name } = definition;
      if (JSON.stringify(definition) === JSON.stringify(before)) return before;
      rows.beginNetworkUpdate(db, definition);
      entry.wanted = definition;
      if (!sameSubnets(before, definition)) this.#changing.add(name);
      try {
        await host.ensure(
          fragmentBetween([before, ...entry.left], definition, this.#parts.config),
          AbortSignal.timeout(hostMs),
        );
        // What was reserved may have been taken meanwhile.
        const place = addresses.prepare(definition);
        const cidrs = definition.subnets.map(({ cidr }) => cidr);
        db.transaction(() => {
          deleteRestingOutside(db, name, cidrs);
          rows.settleNetwork(db, name);
        });
        place();
        entry.definition = definition;
        entry.left = [];
      } catch (thrown) {
        entry.wanted = before;
        entry.left = [...entry.left, definition];
        await this.#tidy(name, async () => {
          await host.ensure(this.#fragmentOf(entry), AbortSignal.timeout(hostMs));
          rows.revertNetwork(db, name);
          entry.left = [];
        });
        throw thrown;
      } finally {
        this.#changing.delete(name);
      }
      await this.#tidy(name, () => this.#unforward());
      await this.answerNames();
      await this.#parts.refit(name);
      await this.#tidy(name, async () => this.#told.note(this.list(), this.#domainOn));
      return definition;
    });
  }

  async #planChange(
    spec: NetworkSpec,
    { force }: Asked,
  ): Promise<{ entry: Entry; before: NetworkDefinition; definition: NetworkDefinition }> {
    this.#refuseElsewhere();
    const entry = this.#find(spec.name);
    const before = entry.definition;
    if (this.isConfigured(before)) throw configuredError(before);
    const others = this.list().filter(({ name }) => name !== spec.name);
    const definition = planNetwork(spec, others, before, force);
    const { db, addresses } = this.#parts;
    const moves = !sameSubnets(before, definition);
    if (moves && !force) await this.#refuseOverlaps(definition, others);
    refuseUpdate(db, before, definition);
    // For what it throws.
    addresses.prepare(definition);
    return { entry, before, definition };
  }

  /** What a delete would take away, a line each. Takes nothing. */
  planDelete(name: string): readonly string[] {
    const entry = this.#entries.get(name as NetworkName);
    if (entry === undefined) return [];
    this.#refuseDelete(entry.definition);
    const { definition } = entry;
    return [
      ...this.#parts.host.describe(this.#fragment(definition)),
      ...this.#namesText(definition),
    ];
  }

  /** Where pods can ask for names, for people. */
  #namesText(definition: NetworkDefinition): string[] {
    if (!this.isResolving(definition)) return [];
    const { subnets, bridge } = definition;
    const gateways = subnets.map(({ gateway }) => ipOf(gateway)).join(" and ");
    return [`names at ${gateways}, port 53, for pods on ${bridge} alone`];
  }

  /**
   * Takes a network away; absent is success, told by what is answered. Throws `NETWORK_IN_USE`, `WRONG_STATE`, and what
   * the host says: then it is on its way out still, and asked for again goes on.
   */
  delete(name: NetworkName): Promise<boolean> {
    return this.#lock.run("networks", async () => {
      const entry = this.#entries.get(name);
      const { db } = this.#parts;
      if (entry === undefined && rows.getNetwork(db, name) === undefined) return false;
      if (entry !== undefined) {
        this.#refuseDelete(entry.definition);
        rows.markNetworkDeleting(db, name);
        // From here on no pod is planned for it, and nobody repairs it.
        this.#entries.delete(name);
        await this.answerNames();
      }
      await this.#takeAway(name);
      return true;
    });
  }

  #refuseDelete(definition: NetworkDefinition): void {
    if (this.isConfigured(definition)) throw configuredError(definition);
    refuseInUse(this.#parts.db, definition);
  }

  /** The host first: the row tells that something is left, and where, for a bridge may have no mark yet. */
  async #takeAway(name: NetworkName): Promise<void> {
    const { db, host, addresses } = this.#parts;
    const row = rows.getNetwork(db, name);
    if (row === undefined) return;
    await host.remove(this.#fragment(row.definition), AbortSignal.timeout(hostMs));
    await this.#unforward();
    rows.deleteNetwork(db, name);
    addresses.drop(name);
  }

  /** The host forwards nothing that no network needs, unless it did before. */
  async #unforward(): Promise<void> {
    const wanted = Array.from(this.#entries.values(), (entry) => entry.wanted);
    await this.#parts.host.unforward(unusedFamilies(wanted), AbortSignal.timeout(hostMs));
  }

  /** What fails of what is to go is done by the next start, or by who asks next. */
  async #tidy(name: NetworkName, body: () => Promise<void>): Promise<void> {
    try {
      await body();
    } catch (err) {
      this.#parts.log.error({ network: name, err }, "Cannot take away all of what the network was");
    }
  }

  /** Runs `takeDown`, which takes everything of podnet's from the host, and forgets all networks but the configured one. */
  down<T>(takeDown: () => Promise<T>): Promise<T> {
    return this.#lock.run("networks", async () => {
      await this.#parts.resolvers.settle(() => []);
      const taken = await takeDown();
      const { db, addresses } = this.#parts;
      for (const definition of this.list()) {
        if (this.isConfigured(definition)) continue;
        rows.deleteNetwork(db, definition.name);
        this.#entries.delete(definition.name);
        addresses.drop(definition.name);
      }
      return taken;
    });
  }
}
