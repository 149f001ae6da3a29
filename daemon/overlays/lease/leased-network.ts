import { type Cidr, contains } from "../../../core/address.ts";
import { PodnetError } from "../../../core/errors.ts";
import type { Clock } from "../../../core/clock.ts";
import type { NetworkName } from "../../../core/names.ts";
import type { Log } from "../../../linux/log.ts";
import type { LeasePhase } from "../../../overlay/lease-status.ts";
import { WorkQueue } from "../../reconcile/work-queue.ts";
import { parseSubnet } from "../../config/cidr.ts";
import type { NetworkDefinition } from "../../config/network-definition.ts";
import type { Networks } from "../../networks/networks.ts";
import { sentMtus } from "../../containers/sent-mtus.ts";
import type { SentMtu } from "../../networks/sent-mtus.ts";
import type { Database } from "../../store/database.ts";
import { listLeases } from "../../ipam/store.ts";

/** The wait between checks whether pods have gone, in milliseconds. */
const lookMs = 500;
/** The wait before a failed change is retried. */
const backoff = { firstMs: 100, longestMs: 500 } as const;

/**
 * How long the list of users with too large an MTU is cached: computing it reads all pods, and
 * metrics ask often.
 */
const widerMs = 5000;

/**
 * The properties that a network takes from its overlay. It has no subnets before there is a lease,
 * and after the lease was given up.
 */
export interface LeasedShape {
  readonly subnets: readonly Cidr[];
  readonly mtu: number;
}

/**
 * How the network's lease is; `moving` is a drain because the configured range is another one, and
 * not because the host leaves.
 */
export type NetworkPhase = LeasePhase | "moving";

export interface LeasedNetworkParts {
  readonly network: NetworkName;
  readonly overlay: string;
  readonly networks: Pick<Networks, "find" | "follow" | "close" | "open">;
  readonly db: Database;
  readonly clock: Pick<Clock, "monotonic">;
  readonly log: Log;
  /** Records the shape that the network is about to get. */
  readonly remember: (shape: LeasedShape) => void;
  /** Removes that record again, because the network does not get the shape. Never throws. */
  readonly takeBack: (shape: LeasedShape) => void;
}

/** A shape that the network is to get. */
interface Move {
  readonly shape: LeasedShape;
  readonly phase: NetworkPhase;
  readonly moved: PromiseWithResolvers<boolean>;
}

/**
 * The definition of a lease's subnets in a network: as planned, with the gateway first and no other
 * setting.
 */
export const leasedSubnets = (subnets: readonly Cidr[]): NetworkDefinition["subnets"] =>
  subnets.map((subnet) => ({ ...parseSubnet(subnet), ranges: [], reserved: [] }));

/**
 * The network whose addresses come from an overlay. It follows the lease, but keeps its subnet
 * while pods use it; nothing new is added to a subnet that is to go.
 */
export class LeasedNetwork implements AsyncDisposable {
  readonly #parts: LeasedNetworkParts;
  #shape: LeasedShape;
  /** The move that was requested last, until it is done. */
  #next: Move | undefined;
  /** The move that the network is given now. */
  #now: Move | undefined;
  readonly #queue: WorkQueue<"network">;
  #wider: { readonly mtu: number; readonly until: number; readonly troubles: readonly string[] } = {
    mtu: 0,
    until: 0,
    troubles: [],
  };

  /** Takes the network as it is now. */
  constructor(parts: LeasedNetworkParts, phase: LeasePhase) {
    this.#parts = parts;
    const { network, log } = parts;
    this.#queue = new WorkQueue({
      name: "overlay-networks",
      backoff,
      onDegraded: (_, { error: err }) =>
        log.error({ network, err }, "Failed to apply the overlay to its network; retrying"),
    });
    const { subnets, mtu } = parts.networks.find(parts.network);
    this.#shape = { subnets: subnets.map(({ cidr }) => cidr), mtu };
    this.#admit(phase);
  }

  get subnets(): readonly Cidr[] {
    return this.#shape.subnets;
  }

  /**
   * The pods and containers whose MTU is larger than the network's by now, in one line; empty if
   * there are none.
   */
  get troubles(): readonly string[] {
    const { networks, network, db, clock } = this.#parts;
    const { mtu, bridgeMtu } = networks.find(network);
    if (bridgeMtu === undefined) return [];
    const { mtu: of, until, troubles } = this.#wider;
    if (of === mtu && clock.monotonic() < until) return troubles;
    const wider = sentMtus(db, network).filter((sent) => sent.mtu > mtu);
    const now = wider.length === 0 ? [] : [widerText(wider, mtu)];
    this.#wider = { mtu, until: clock.monotonic() + widerMs, troubles: now };
    return now;
  }

  /**
   * Changes the network to this shape, once no pod holds an address of a subnet that goes. Resolves
   * to whether it changed: it did not if another shape was requested meanwhile. Until then, and
   * afterwards if there is no subnet, requests for something new on the network are refused with
   * `phase`.
   */
  become(shape: LeasedShape, phase: NetworkPhase): Promise<boolean> {
    // (One that is under way is completed first.)
    if (this.#next !== this.#now) this.#next?.moved.resolve(false);
    this.#next = { shape, phase, moved: Promise.withResolvers() };
    this.#queue.add("network", () => this.#move());
    return this.#next.moved.promise;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const last = this.#next;
    this.#next = undefined;
    await this.#queue.close();
    last?.moved.resolve(false);
  }

  /** Waits while a subnet that goes is in use. Throws why the network could not be changed. */
  async #move(): Promise<void> {
    const move = this.#next;
    if (move === undefined) return;
    const { networks, network, remember, takeBack } = this.#parts;
    const { shape, phase, moved } = move;
    const before = this.#shape;
    if (sameTexts(shape.subnets, before.subnets)) this.#admit(phase);
    else networks.close(network, this.#refusal(phase));
    this.#now = move;
    try {
      if (this.#isHeld(shape)) {
        this.#queue.add("network", () => this.#move(), lookMs);
        return;
      }
      // Recorded before the change: a start that finds pods on subnets that are not recorded
      // would not know them.
      remember(shape);
      await this.#follow(shape);
      this.#shape = shape;
      this.#admit(phase);
      if (this.#next === move) this.#next = undefined;
      moved.resolve(true);
    } catch (thrown) {
      takeBack(before);
      throw thrown;
    } finally {
      this.#now = undefined;
      // Another shape was requested meanwhile: this one is not tried again.
      if (this.#next !== move) moved.resolve(false);
    }
  }

  async #follow({ subnets, mtu }: LeasedShape): Promise<void> {
    const { networks, network, log } = this.#parts;
    const before = networks.find(network).mtu;
    await networks.follow(network, { subnets: leasedSubnets(subnets), mtu });
    if (mtu >= before) return;
    for (const trouble of this.troubles) log.warn({ network, mtu, before }, trouble);
  }

  /** Whether a pod or container holds an address of a subnet that is to go. */
  #isHeld({ subnets }: LeasedShape): boolean {
    const gone = this.#shape.subnets.filter((subnet) => !subnets.includes(subnet));
    if (gone.length === 0) return false;
    const { db, network } = this.#parts;
    return listLeases(db, network).some(
      ({ address, freedMs }) =>
        freedMs === undefined && gone.some((subnet) => contains(subnet, address)),
    );
  }

  #admit(phase: NetworkPhase): void {
    const { networks, network } = this.#parts;
    const open = this.#shape.subnets.length > 0 && phase !== "draining" && phase !== "moving";
    if (open) networks.open(network);
    else networks.close(network, this.#refusal(phase));
  }

  #refusal(phase: NetworkPhase): PodnetError {
    const { network, overlay } = this.#parts;
    const [why, hint] = refusals[phase];
    return new PodnetError(
      "OVERLAY_NOT_READY",
      `Network "${network}" ${why} overlay "${overlay}"`,
      {
        field: "network",
        hint,
        details: { network, overlay, phase: phase === "moving" ? "draining" : phase },
      },
    );
  }
}

const wait = "Ask again when it has; what is in the way: podnet overlay list";
const refusals: Readonly<Record<NetworkPhase, readonly [why: string, hint: string]>> = {
  waiting: ["has no subnet yet of", wait],
  acquiring: ["has no subnet yet of", wait],
  held: ["is given another subnet of", "Ask again when the pods on the former one are gone"],
  lost: ["is given another subnet of", "Ask again when the pods on the former one are gone"],
  draining: ["is about to leave", "Use another network, or take part again: podnet overlay join"],
  moving: [
    "has a subnet that is outside of the configured range of",
    "Ask again when the pods on it are gone: the network then gets a subnet of that range",
  ],
  left: ["has left", "Take part again: podnet overlay join"],
};

/** The number of users with too large an MTU that are named. */
const fewUsers = 5;

function widerText(wider: readonly SentMtu[], mtu: number): string {
  const named = wider.slice(0, fewUsers).map((sent) => `${sent.kind} ${sent.name} (${sent.mtu})`);
  const more = wider.length > fewUsers ? ` and ${wider.length - fewUsers} more` : "";
  return `the overlay carries packets of ${mtu} bytes; these have a larger MTU: ${named.join(", ")}${more}; podnet interface set POD eth0 --mtu ${mtu}, or create them again`;
}

const sameTexts = (a: readonly string[], b: readonly string[]): boolean => a.join() === b.join();
