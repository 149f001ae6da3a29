import { PodnetError } from "../../core/errors.ts";
import { type NetworkName, printable } from "../../core/names.ts";
import { didYouMean } from "../../core/nearest.ts";
import type { NetworkFragment } from "../../network/model/desired.ts";
import type { NetworkDefinition } from "../config/network-definition.ts";
import { type FirewallConfig, fragmentBetween, networkFragment } from "./network-fragment.ts";

/** A network as this podnetd has it. */
export interface NetworkEntry {
  /** The definition with which pods are planned. */
  definition: NetworkDefinition;
  /** The desired definition on the host, which differs during a change. */
  wanted: NetworkDefinition;
  /** It is changing from one definition to the other: deviations on the host are podnetd's own. */
  moving: boolean;
  /**
   * Earlier definitions that may have left objects on the host, because a change to them could not
   * be reverted.
   */
  left: readonly NetworkDefinition[];
}

/** The networks of this node, and their desired state on the host. */
export class NetworkEntries {
  readonly #config: FirewallConfig;
  readonly #entries = new Map<NetworkName, NetworkEntry>();

  constructor(config: FirewallConfig) {
    this.#config = config;
  }

  /** The networks in `left` may have something on the host still. */
  enter(definition: NetworkDefinition, left: readonly NetworkDefinition[] = []): void {
    this.#entries.set(definition.name, { definition, wanted: definition, moving: false, left });
  }

  remove(name: NetworkName): void {
    this.#entries.delete(name);
  }

  /** By name. */
  list(): NetworkDefinition[] {
    return Array.from(this.#entries.values(), ({ definition }) => definition).toSorted((a, b) =>
      a.name < b.name ? -1 : 1,
    );
  }

  /** The definitions that the host should have. */
  wanted(): NetworkDefinition[] {
    return Array.from(this.#entries.values(), ({ wanted }) => wanted);
  }

  get(name: string): NetworkEntry | undefined {
    return this.#entries.get(name as NetworkName);
  }

  /** Throws `NETWORK_NOT_FOUND`. */
  find(name: string): NetworkEntry {
    const entry = this.get(name);
    if (entry !== undefined) return entry;
    const names = this.list().map((each) => each.name);
    throw new PodnetError("NETWORK_NOT_FOUND", `There is no network "${printable(name)}"`, {
      field: "name",
      hint: `${didYouMean(name, names)}Networks are: ${names.join(", ")}`,
    });
  }

  /** The desired state of all networks. */
  fragments(): NetworkFragment[] {
    return Array.from(this.#entries.values(), (entry) => this.fragmentOf(entry));
  }

  /** The desired state of a network; undefined if it does not exist, or is being changed. */
  stableFragment(name: string): NetworkFragment | undefined {
    const entry = this.get(name);
    return entry === undefined || entry.moving ? undefined : this.fragmentOf(entry);
  }

  fragmentOf({ wanted, left }: NetworkEntry): NetworkFragment {
    return this.between(left, wanted);
  }

  /** The desired state for a definition, which need not belong to a network of this node. */
  plain(definition: NetworkDefinition): NetworkFragment {
    return networkFragment(definition, this.#config);
  }

  /**
   * The desired state for a network whose earlier definitions may have left objects on the host.
   */
  between(left: readonly NetworkDefinition[], wanted: NetworkDefinition): NetworkFragment {
    return fragmentBetween(left, wanted, this.#config);
  }
}
