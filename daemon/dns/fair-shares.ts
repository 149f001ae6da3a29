import type { NetworkName } from "../../core/names.ts";
import type { HolderId } from "../store/holder.ts";

/** Who asks: a pod or a container, at one network. */
export interface Asker {
  readonly network: NetworkName;
  readonly holder: HolderId;
}

/** Most places that one asker, one network, and all networks together have. */
export interface ShareLimits {
  readonly asker: number;
  readonly network: number;
  readonly all: number;
}

interface Place {
  readonly asker: Asker;
  /** Ends what has the place. */
  readonly displaced: () => void;
}

/** The places of each asker of a network, the oldest first. */
type NetworkPlaces = Map<HolderId, Set<Place>>;

/**
 * A number of slots, divided fairly among networks and among the askers of each (max-min). While
 * slots are free, an asker takes as many as its limit allows. When none are, an asker with fewer
 * gets a slot of the one with most: first among networks, then within the network. The asker's
 * oldest slot is the one it loses, and its holder is notified. Pure but for that.
 */
export class FairShares {
  readonly #limits: ShareLimits;
  readonly #networks = new Map<NetworkName, NetworkPlaces>();
  readonly #sizes = new Map<NetworkName, number>();
  #all = 0;

  constructor(limits: ShareLimits) {
    this.#limits = limits;
  }

  /**
   * Takes a place until disposed. Undefined when the asker has its share. `displaced` is called at
   * most once, when the place goes to another asker; it must not throw.
   */
  take(asker: Asker, displaced: () => void): Disposable | undefined {
    const { asker: most, network: mostOfNetwork, all } = this.#limits;
    const own = this.#sizeOfAsker(asker);
    if (own >= most) return undefined;
    const isNetworkFull = this.#sizeOf(asker.network) >= mostOfNetwork;
    if (isNetworkFull || this.#all >= all) {
      const from = (isNetworkFull ? undefined : this.#heavierNetwork(asker)) ?? asker.network;
      const loser = this.#oldestOfHeaviest(from, from === asker.network ? own + 2 : 1);
      if (loser === undefined) return undefined;
      this.#remove(loser);
      loser.displaced();
    }
    const place = { asker, displaced };
    this.#add(place);
    return { [Symbol.dispose]: () => this.#remove(place) };
  }

  #sizeOf(network: NetworkName): number {
    return this.#sizes.get(network) ?? 0;
  }

  #sizeOfAsker({ network, holder }: Asker): number {
    return this.#networks.get(network)?.get(holder)?.size ?? 0;
  }

  /**
   * The network with the most places, where it would still have no fewer than the asker's after
   * giving one away.
   */
  #heavierNetwork({ network }: Asker): NetworkName | undefined {
    let heaviest: NetworkName | undefined;
    let size = this.#sizeOf(network) + 1;
    for (const [each, places] of this.#sizes)
      if (places > size) {
        heaviest = each;
        size = places;
      }
    return heaviest;
  }

  /** The oldest slot of the asker that has most, and at least `least`. */
  #oldestOfHeaviest(network: NetworkName, least: number): Place | undefined {
    let heaviest: Set<Place> | undefined;
    for (const places of this.#networks.get(network)?.values() ?? [])
      if (places.size >= Math.max(least, (heaviest?.size ?? 0) + 1)) heaviest = places;
    const [oldest] = heaviest ?? [];
    return oldest;
  }

  #add(place: Place): void {
    const { network, holder } = place.asker;
    const askers: NetworkPlaces = this.#networks.get(network) ?? new Map();
    this.#networks.set(network, askers);
    const places = askers.get(holder) ?? new Set();
    askers.set(holder, places);
    places.add(place);
    this.#sizes.set(network, this.#sizeOf(network) + 1);
    this.#all++;
  }

  /** Does nothing for a place that was given away or returned. */
  #remove(place: Place): void {
    const { network, holder } = place.asker;
    const askers = this.#networks.get(network);
    const places = askers?.get(holder);
    if (places?.delete(place) !== true) return;
    this.#all--;
    this.#sizes.set(network, this.#sizeOf(network) - 1);
    if (places.size === 0) askers?.delete(holder);
    if (askers?.size === 0) {
      this.#networks.delete(network);
      this.#sizes.delete(network);
    }
  }
}
