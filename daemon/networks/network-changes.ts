import { PodnetError } from "../../core/errors.ts";
import type { NetworkName } from "../../core/names.ts";
import { deleteQuarantinedOutside } from "../ipam/store.ts";
import * as rows from "./store.ts";
import {
  type NetworkDefinition,
  sameSubnets,
  unusedFamilies,
} from "../config/network-definition.ts";
import type { GatewayNames } from "./gateway-names.ts";
import type { NetworkEntries, NetworkEntry } from "./network-entries.ts";
import { hostMs, type NetworksParts } from "./networks-parts.ts";

/** Changes networks, and refuses plans for them meanwhile. */
export class NetworkChanges {
  readonly #parts: NetworksParts;
  readonly #entries: NetworkEntries;
  readonly #names: GatewayNames;
  /** The networks whose subnets are being replaced. */
  readonly #changing = new Set<string>();
  /**
   * The networks on which nothing new is planned, with the reason: networks whose subnets are
   * leased.
   */
  readonly #closed = new Map<string, PodnetError>();

  constructor(parts: NetworksParts, entries: NetworkEntries, names: GatewayNames) {
    this.#parts = parts;
    this.#entries = entries;
    this.#names = names;
  }

  /** Throws the reason if nothing can be planned for one of these networks. */
  refuse(names: readonly string[]): void {
    for (const each of names) {
      const why = this.#closed.get(each);
      if (why !== undefined) throw why;
    }
    const name = names.find((each) => this.#changing.has(each));
    if (name === undefined) return;
    throw new PodnetError("WRONG_STATE", `Network "${name}" is being given other subnets`, {
      hint: "Ask again in a moment",
      details: { network: name },
    });
  }

  /** From now on, requests for something new on a network are refused with this reason. */
  close(name: string, why: PodnetError): void {
    this.#closed.set(name, why);
  }

  /** Undoes `close`. */
  open(name: string): void {
    this.#closed.delete(name);
  }

  /**
   * Changes a network to a definition that was found possible. Throws the errors of the host: then
   * the network is unchanged.
   */
  async run(entry: NetworkEntry, definition: NetworkDefinition): Promise<NetworkDefinition> {
    const before = entry.definition;
    const { db, addresses, host } = this.#parts;
    const { name } = definition;
    if (JSON.stringify(definition) === JSON.stringify(before)) return before;
    rows.beginNetworkUpdate(db, definition);
    entry.wanted = definition;
    entry.moving = true;
    if (!sameSubnets(before, definition)) this.#changing.add(name);
    try {
      await host.apply(
        this.#entries.between([before, ...entry.left], definition),
        AbortSignal.timeout(hostMs),
      );
      // The reserved addresses may have been taken meanwhile.
      const place = addresses.prepare(definition);
      const cidrs = definition.subnets.map(({ cidr }) => cidr);
      db.transaction(() => {
        deleteQuarantinedOutside(db, name, cidrs);
        rows.completeNetwork(db, name);
      });
      place();
      entry.definition = definition;
      entry.left = [];
    } catch (thrown) {
      entry.wanted = before;
      entry.left = [...entry.left, definition];
      await this.tidy(name, async () => {
        await host.apply(this.#entries.fragmentOf(entry), AbortSignal.timeout(hostMs));
        rows.revertNetwork(db, name);
        entry.left = [];
      });
      throw thrown;
    } finally {
      this.#changing.delete(name);
      entry.moving = false;
    }
    await this.tidy(name, () => this.unforward());
    await this.#names.answer();
    await this.#parts.follow(name);
    await this.tidy(name, async () => this.#names.noteSent());
    return definition;
  }

  /** Reverts forwarding that no network needs any more, if podnet enabled it. */
  async unforward(): Promise<void> {
    const families = unusedFamilies(this.#entries.wanted());
    await this.#parts.host.remove({ kind: "forwarding", families }, AbortSignal.timeout(hostMs));
  }

  /** A failed removal is repeated by the next start, or by the next call. */
  async tidy(name: NetworkName, body: () => Promise<void>): Promise<void> {
    try {
      await body();
    } catch (err) {
      this.#parts.log.error(
        { network: name, err },
        "Failed to remove all of the network's former state",
      );
    }
  }
}
