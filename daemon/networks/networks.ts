import type { NetworkSpec } from "../../api/network-spec.ts";
import type { Ip } from "../../core/address.ts";
import type { PodnetError } from "../../core/errors.ts";
import type { NetworkName } from "../../core/names.ts";
import type { NetworkFragment } from "../../network/model/desired.ts";
import { KeyedLock } from "../reconcile/keyed-lock.ts";
import type { KnownNetworks } from "./known-networks.ts";
import * as rows from "./store.ts";
import { carried, type NetworkDefinition } from "../config/network-definition.ts";
import { GatewayNames } from "./gateway-names.ts";
import { NetworkChanges } from "./network-changes.ts";
import { NetworkEntries } from "./network-entries.ts";
import { NetworkPlans } from "./network-plans.ts";
import { type Asked, hostMs, type NetworksParts } from "./networks-parts.ts";
import { refuseUpdate } from "./refuse-update.ts";
import { carriedFor } from "./sent-mtus.ts";

/**
 * The networks of this node. They are changed one at a time: the row first, then the host, and back
 * when the host refuses. What a crash cut short the next start finishes or undoes (`settle.ts`).
 */
export class Networks implements KnownNetworks {
  readonly #parts: NetworksParts;
  readonly #entries: NetworkEntries;
  readonly #names: GatewayNames;
  readonly #plans: NetworkPlans;
  readonly #lock = new KeyedLock<"networks">();
  readonly #changes: NetworkChanges;

  /** Takes the networks as they were settled. */
  constructor(parts: NetworksParts, settled: readonly NetworkDefinition[]) {
    this.#parts = parts;
    this.#entries = new NetworkEntries(parts.config);
    this.#names = new GatewayNames(parts, this.#entries);
    this.#plans = new NetworkPlans(parts, this.#entries, this.#names);
    this.#changes = new NetworkChanges(parts, this.#entries, this.#names);
    for (const definition of settled) {
      const row = rows.getNetwork(parts.db, definition.name);
      // The host has refused to take that change back.
      this.#entries.enter(definition, row?.before === undefined ? [] : [row.definition]);
    }
  }

  list(): NetworkDefinition[] {
    return this.#entries.list();
  }

  /** Throws `NETWORK_NOT_FOUND`. */
  find(name: string): NetworkDefinition {
    return this.#entries.find(name).definition;
  }

  isConfigured({ name }: NetworkDefinition): boolean {
    return name === this.#parts.configured;
  }

  domainOf(name: NetworkName, reported: readonly Ip[]): string | undefined {
    return this.#names.domainOf(name, reported);
  }

  /**
   * After a start: guests follow where their networks say otherwise of name servers than they were
   * told.
   */
  async followServers(): Promise<void> {
    for (const name of this.#names.outdated()) await this.#parts.follow(name);
    this.#names.noteSent();
  }

  /** Whether pods of a network are to ask its gateways for names. */
  isResolving(network: NetworkDefinition): boolean {
    return this.#names.isResolving(network);
  }

  /**
   * Lets pods of all networks ask for names, where that is so; what cannot be had is reported and
   * tried again.
   */
  answerNames(): Promise<void> {
    return this.#names.answer();
  }

  refuseChanging(names: readonly string[]): void {
    this.#changes.refuse(names);
  }

  /** What the host is to have of networks. */
  fragments(): NetworkFragment[] {
    return this.#entries.fragments();
  }

  /**
   * The same of one that is as it is to stay; undefined when it is no more, or is being made
   * another one.
   */
  settledFragment(name: string): NetworkFragment | undefined {
    return this.#entries.settledFragment(name);
  }

  /**
   * What a create would do to the host, a line each. Takes nothing. Throws as `create` does before
   * it begins.
   */
  planCreate(spec: NetworkSpec, asked: Asked): Promise<readonly string[]> {
    return this.#plans.textOfCreate(spec, asked);
  }

  /** What an update would change, a line each. Takes nothing. */
  planUpdate(spec: NetworkSpec, asked: Asked): Promise<readonly string[]> {
    return this.#plans.textOfUpdate(spec, asked);
  }

  /** What a delete would take away, a line each. Takes nothing. */
  planDelete(name: string): readonly string[] {
    return this.#plans.textOfDelete(name);
  }

  /**
   * Makes a network. Throws `NAME_IN_USE`, `NETWORK_OVERLAP`, `BRIDGE_CONFLICT`, `LIMIT_REACHED`,
   * `ADDRESS_*`, and what the host says: then nothing is left of it.
   */
  create(spec: NetworkSpec, asked: Asked): Promise<NetworkDefinition> {
    return this.#lock.run("networks", async () => {
      const definition = await this.#plans.planNew(spec, asked);
      const { db, addresses, clock, host } = this.#parts;
      const createdMs = clock.now();
      // One that was cut short and not undone has the name still.
      if (rows.getNetwork(db, definition.name) !== undefined) await this.#takeAway(definition.name);
      const place = addresses.prepare(definition);
      const row = { state: "creating", configured: false, createdMs } as const;
      const write = (): void => rows.putNetwork(db, definition, row);
      db.transaction(write, undefined, "always", "new");
      try {
        await host.apply(this.#entries.plain(definition), AbortSignal.timeout(hostMs));
        rows.settleNetwork(db, definition.name);
      } catch (thrown) {
        await this.#changes.tidy(definition.name, () => this.#takeAway(definition.name));
        throw thrown;
      }
      place();
      this.#entries.enter(definition);
      await this.answerNames();
      await this.#changes.tidy(definition.name, async () => this.#names.noteSent());
      return definition;
    });
  }

  /**
   * Makes a network what the spec says. Throws `NETWORK_NOT_FOUND`, `NETWORK_IN_USE`,
   * `MTU_OUT_OF_RANGE`, `NETWORK_OVERLAP`, `ADDRESS_*`, `WRONG_STATE`, and what the host says: then
   * it is as it was.
   */
  update(spec: NetworkSpec, asked: Asked): Promise<NetworkDefinition> {
    return this.#lock.run("networks", async () => {
      const { entry, definition } = await this.#plans.planChange(spec, asked);
      return this.#changes.run(entry, definition);
    });
  }

  /**
   * Gives a network the subnets that were leased for it, or none. Throws `NETWORK_NOT_FOUND`,
   * `NETWORK_IN_USE` while pods hold addresses of those that go, and what the host says: then it is
   * as it was. Who was told a larger MTU keeps it, and the bridge carries that.
   */
  follow(
    name: string,
    leased: Pick<NetworkDefinition, "subnets" | "mtu">,
  ): Promise<NetworkDefinition> {
    return this.#lock.run("networks", async () => {
      const entry = this.#entries.find(name);
      const { db, addresses, sentMtus } = this.#parts;
      for (;;) {
        const reported = sentMtus(entry.definition.name);
        const { bridgeMtu: _former, ...rest } = entry.definition;
        const definition = { ...rest, ...leased, ...carriedFor(reported, { ...rest, ...leased }) };
        refuseUpdate(db, reported, entry.definition, definition);
        addresses.prepare(definition);
        const made = await this.#changes.run(entry, definition);
        // A pod that came meanwhile was told what the network had before.
        if ((carriedFor(sentMtus(made.name), made).bridgeMtu ?? 0) <= carried(made)) return made;
      }
    });
  }

  /** Its subnets come from an overlay: the API neither changes nor deletes it until `release`. */
  lease(name: string): void {
    this.#plans.leased.add(name);
  }

  release(name: string): void {
    this.#plans.leased.delete(name);
    this.open(name);
  }

  /** From now on whoever wants something new on a network is told why that cannot be. */
  close(name: string, why: PodnetError): void {
    this.#changes.close(name, why);
  }

  /** Undoes `close`. */
  open(name: string): void {
    this.#changes.open(name);
  }

  /**
   * Takes a network away; absent is success, told by what is answered. Throws `NETWORK_IN_USE`,
   * `WRONG_STATE`, and what the host says: then it is on its way out still, and asked for again
   * goes on.
   */
  delete(name: NetworkName): Promise<boolean> {
    return this.#lock.run("networks", async () => {
      const entry = this.#entries.get(name);
      const { db } = this.#parts;
      if (entry === undefined && rows.getNetwork(db, name) === undefined) return false;
      if (entry !== undefined) {
        this.#plans.refuseDelete(entry.definition);
        rows.markNetworkDeleting(db, name);
        // From here on no pod is planned for it, and nobody repairs it.
        this.#entries.remove(name);
        await this.answerNames();
      }
      await this.#takeAway(name);
      await this.#changes.tidy(name, async () => this.#names.noteSent());
      return true;
    });
  }

  /**
   * The host first: the row tells that something is left, and where, for a bridge may have no mark
   * yet.
   */
  async #takeAway(name: NetworkName): Promise<void> {
    const { db, host, addresses } = this.#parts;
    const row = rows.getNetwork(db, name);
    if (row === undefined) return;
    await host.remove(this.#entries.plain(row.definition), AbortSignal.timeout(hostMs));
    await this.#changes.unforward();
    rows.deleteNetwork(db, name);
    addresses.drop(name);
  }

  /**
   * Runs `takeDown`, which takes everything of podnet's from the host, and forgets all networks but
   * the configured one.
   */
  down<T>(takeDown: () => Promise<T>): Promise<T> {
    return this.#lock.run("networks", async () => {
      await this.#names.silence();
      const taken = await takeDown();
      const { db, addresses } = this.#parts;
      for (const definition of this.list()) {
        if (this.isConfigured(definition)) continue;
        rows.deleteNetwork(db, definition.name);
        this.#entries.remove(definition.name);
        addresses.drop(definition.name);
      }
      return taken;
    });
  }
}
