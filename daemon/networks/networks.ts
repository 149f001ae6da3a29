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
 * The networks of this node. Changes run one at a time: first the row, then the host; the row is
 * reverted if the host refuses. The next start finishes or undoes a change that a crash interrupted
 * (`recover.ts`).
 */
export class Networks implements KnownNetworks {
  readonly #parts: NetworksParts;
  readonly #entries: NetworkEntries;
  readonly #names: GatewayNames;
  readonly #plans: NetworkPlans;
  readonly #lock = new KeyedLock<"networks">();
  readonly #changes: NetworkChanges;

  /** Starts with the networks that `recoverNetworks` returned. */
  constructor(parts: NetworksParts, recovered: readonly NetworkDefinition[]) {
    this.#parts = parts;
    this.#entries = new NetworkEntries(parts.config);
    this.#names = new GatewayNames(parts, this.#entries);
    this.#plans = new NetworkPlans(parts, this.#entries, this.#names);
    this.#changes = new NetworkChanges(parts, this.#entries, this.#names);
    for (const definition of recovered) {
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
   * After a start: updates guests whose networks have other name servers than the guests were sent.
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
   * Starts answering names for pods of all networks that have it enabled. Failures are reported and
   * retried.
   */
  answerNames(): Promise<void> {
    return this.#names.answer();
  }

  refuseChanging(names: readonly string[]): void {
    this.#changes.refuse(names);
  }

  /** The desired state of all networks. */
  fragments(): NetworkFragment[] {
    return this.#entries.fragments();
  }

  /** The desired state of a network; undefined if it does not exist, or is being changed. */
  stableFragment(name: string): NetworkFragment | undefined {
    return this.#entries.stableFragment(name);
  }

  /**
   * The changes of the host that a create would make, a line each. Reserves nothing. Throws as
   * `create` does before it starts.
   */
  planCreate(spec: NetworkSpec, asked: Asked): Promise<readonly string[]> {
    return this.#plans.textOfCreate(spec, asked);
  }

  /** The changes that an update would make, a line each. Reserves nothing. */
  planUpdate(spec: NetworkSpec, asked: Asked): Promise<readonly string[]> {
    return this.#plans.textOfUpdate(spec, asked);
  }

  /** The objects that a delete would remove, a line each. Reserves nothing. */
  planDelete(name: string): readonly string[] {
    return this.#plans.textOfDelete(name);
  }

  /**
   * Makes a network. Throws `NAME_IN_USE`, `NETWORK_OVERLAP`, `BRIDGE_CONFLICT`, `LIMIT_REACHED`,
   * `ADDRESS_*`, and the errors of the host: then nothing is left of the network.
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
        rows.completeNetwork(db, definition.name);
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
   * Changes a network to the spec. Throws `NETWORK_NOT_FOUND`, `NETWORK_IN_USE`,
   * `MTU_OUT_OF_RANGE`, `NETWORK_OVERLAP`, `ADDRESS_*`, `WRONG_STATE`, and the errors of the host:
   * then the network is unchanged.
   */
  update(spec: NetworkSpec, asked: Asked): Promise<NetworkDefinition> {
    return this.#lock.run("networks", async () => {
      const { entry, definition } = await this.#plans.planChange(spec, asked);
      return this.#changes.run(entry, definition);
    });
  }

  /**
   * Gives a network the subnets of its lease, or none. Throws `NETWORK_NOT_FOUND`, `NETWORK_IN_USE`
   * while pods hold addresses of subnets that go, and the errors of the host: then the network is
   * unchanged. Guests that were sent a larger MTU keep it, and the bridge carries it.
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
        // A pod that joined meanwhile was sent the network's earlier MTU.
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

  /** From now on, requests for something new on a network are refused with this reason. */
  close(name: string, why: PodnetError): void {
    this.#changes.close(name, why);
  }

  /** Undoes `close`. */
  open(name: string): void {
    this.#changes.open(name);
  }

  /**
   * Removes a network; absence is success, and the result says whether it existed. Throws
   * `NETWORK_IN_USE`, `WRONG_STATE`, and the errors of the host: then its removal is still pending,
   * and a repeated call continues it.
   */
  delete(name: NetworkName): Promise<boolean> {
    return this.#lock.run("networks", async () => {
      const entry = this.#entries.get(name);
      const { db } = this.#parts;
      if (entry === undefined && rows.getNetwork(db, name) === undefined) return false;
      if (entry !== undefined) {
        this.#plans.refuseDelete(entry.definition);
        rows.markNetworkDeleting(db, name);
        // From here on, no pod is planned on the network, and drift repair ignores it.
        this.#entries.remove(name);
        await this.answerNames();
      }
      await this.#takeAway(name);
      await this.#changes.tidy(name, async () => this.#names.noteSent());
      return true;
    });
  }

  /**
   * The host first, because the row records what is left and where: a bridge may have no mark yet.
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
