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

/** How a network becomes another one, and what cannot be planned for it meanwhile. */
export class NetworkChanges {
  readonly #parts: NetworksParts;
  readonly #entries: NetworkEntries;
  readonly #names: GatewayNames;
  /** Whose subnets are being exchanged. */
  readonly #changing = new Set<string>();
  /** On which nothing new is planned, and why: those whose subnets are leased. */
  readonly #closed = new Map<string, PodnetError>();

  constructor(parts: NetworksParts, entries: NetworkEntries, names: GatewayNames) {
    this.#parts = parts;
    this.#entries = entries;
    this.#names = names;
  }

  /** Throws why nothing can be planned for one of these, if that is so. */
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

  /** From now on whoever wants something new on a network is told why that cannot be. */
  close(name: string, why: PodnetError): void {
    this.#closed.set(name, why);
  }

  /** Undoes `close`. */
  open(name: string): void {
    this.#closed.delete(name);
  }

  /**
   * Makes a network another one, which has been found to be possible. Throws what the host says:
   * then it is as it was.
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
      // What was reserved may have been taken meanwhile.
      const place = addresses.prepare(definition);
      const cidrs = definition.subnets.map(({ cidr }) => cidr);
      db.transaction(() => {
        deleteQuarantinedOutside(db, name, cidrs);
        rows.settleNetwork(db, name);
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

  /** The host forwards nothing that no network needs, unless it did before. */
  async unforward(): Promise<void> {
    const families = unusedFamilies(this.#entries.wanted());
    await this.#parts.host.remove({ kind: "forwarding", families }, AbortSignal.timeout(hostMs));
  }

  /** What fails of what is to go is done by the next start, or by who asks next. */
  async tidy(name: NetworkName, body: () => Promise<void>): Promise<void> {
    try {
      await body();
    } catch (err) {
      this.#parts.log.error({ network: name, err }, "Cannot take away all of what the network was");
    }
  }
}
