import { setTimeout as delay } from "node:timers/promises";
import { type Cidr, contains } from "../../core/address.ts";
import { isPodnetError, PodnetError } from "../../core/errors.ts";
import type { NetworkName } from "../../core/names.ts";
import type { Log } from "../../linux/log.ts";
import type { LeasePhase } from "../../overlay/lease-status.ts";
import { parseSubnet } from "../config/cidr.ts";
import type { NetworkDefinition } from "../networks/definition.ts";
import type { Networks } from "../networks/networks.ts";
import type { Database } from "../store/database.ts";
import { listLeases } from "../store/leases.ts";

/** Between looks whether pods have gone, and between tries of what has failed, milliseconds. */
const againMs = 500;

/** What a network has of its overlay: no subnets before there is a lease, and after it was given up. */
export interface LeasedShape {
  readonly subnets: readonly Cidr[];
  readonly mtu: number;
}

export interface LeasedNetworkParts {
  readonly network: NetworkName;
  readonly overlay: string;
  readonly networks: Pick<Networks, "find" | "follow" | "close" | "open">;
  readonly db: Database;
  readonly log: Log;
  /** Writes down what the network is about to have. */
  readonly remember: (shape: LeasedShape) => void;
}

/** What a subnet of a lease is to a network: as it was planned, with the gateway first and nothing else said. */
export const leasedSubnets = (subnets: readonly Cidr[]): NetworkDefinition["subnets"] =>
  subnets.map((subnet) => ({ ...parseSubnet(subnet), ranges: [], reserved: [] }));

/**
 * The network whose addresses come from an overlay. It goes where the lease goes: not from under pods, and with nothing new in
 * it once it is to go.
 */
export class LeasedNetwork implements AsyncDisposable {
  readonly #parts: LeasedNetworkParts;
  #shape: LeasedShape;
  #turn = new AbortController();
  #moving: Promise<unknown> = Promise.resolve();
  #over = false;

  /** Takes the network as it is now. */
  constructor(parts: LeasedNetworkParts, phase: LeasePhase) {
    this.#parts = parts;
    const { subnets, mtu } = parts.networks.find(parts.network);
    this.#shape = { subnets: subnets.map(({ cidr }) => cidr), mtu };
    this.#admit(phase);
  }

  get subnets(): readonly Cidr[] {
    return this.#shape.subnets;
  }

  /**
   * Has the network become this, once no pod holds an address of what goes. Resolves to whether it has: it has not when something
   * else is wanted meanwhile. `phase` is said to those who want something new on it until then, and after that if there is no subnet.
   */
  become(shape: LeasedShape, phase: LeasePhase): Promise<boolean> {
    this.#turn.abort();
    this.#turn = new AbortController();
    const { signal } = this.#turn;
    const moved = this.#moving.then(() => this.#move(shape, phase, signal));
    this.#moving = moved;
    return moved;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#over = true;
    this.#turn.abort();
    await this.#moving;
  }

  async #move(shape: LeasedShape, phase: LeasePhase, signal: AbortSignal): Promise<boolean> {
    const { networks, network, log, remember } = this.#parts;
    if (sameTexts(shape.subnets, this.#shape.subnets)) this.#admit(phase);
    else networks.close(network, this.#refusal(phase));
    let told: string | undefined;
    while (!signal.aborted && !this.#over) {
      if (this.#isHeld(shape)) {
        await pause(signal);
        continue;
      }
      const before = this.#shape;
      try {
        // Before the network has it: a start that finds pods on other subnets than those written down would not know them.
        remember(shape);
        await this.#follow(shape);
        this.#shape = shape;
        this.#admit(phase);
        return true;
      } catch (err) {
        remember(before);
        const text = String(err);
        if (text !== told) log.error({ network, err }, "The network cannot follow its overlay yet");
        told = text;
        await pause(signal);
      }
    }
    return false;
  }

  async #follow({ subnets, mtu }: LeasedShape): Promise<void> {
    const { networks, network, log } = this.#parts;
    try {
      await networks.follow(network, { subnets: leasedSubnets(subnets), mtu });
    } catch (err) {
      if (!isPodnetError(err, "MTU_OUT_OF_RANGE")) throw err;
      // Pods keep what they were made with, and lose what does not fit; new ones are told so by nobody either.
      log.warn({ network, err }, "The overlay carries less than pods were told");
      const { mtu: now } = networks.find(network);
      await networks.follow(network, { subnets: leasedSubnets(subnets), mtu: now });
    }
  }

  /** Whether somebody holds an address of a subnet that is to go. */
  #isHeld({ subnets }: LeasedShape): boolean {
    const gone = this.#shape.subnets.filter((subnet) => !subnets.includes(subnet));
    if (gone.length === 0) return false;
    const { db, network } = this.#parts;
    return listLeases(db, network).some(
      ({ address, freedMs }) =>
        freedMs === undefined && gone.some((subnet) => contains(subnet, address)),
    );
  }

  #admit(phase: LeasePhase): void {
    const { networks, network } = this.#parts;
    const open = this.#shape.subnets.length > 0 && phase !== "draining";
    if (open) networks.open(network);
    else networks.close(network, this.#refusal(phase));
  }

  #refusal(phase: LeasePhase): PodnetError {
    const { network, overlay } = this.#parts;
    const [why, hint] = refusals[phase];
    return new PodnetError(
      "OVERLAY_NOT_READY",
      `Network "${network}" ${why} overlay "${overlay}"`,
      {
        field: "network",
        hint,
        details: { network, overlay, phase },
      },
    );
  }
}

const wait = "Ask again when it has; what is in the way: podnet overlay list";
const refusals: Readonly<Record<LeasePhase, readonly [why: string, hint: string]>> = {
  waiting: ["has no subnet yet of", wait],
  acquiring: ["has no subnet yet of", wait],
  held: ["is given another subnet of", "Ask again when the pods on the former one are gone"],
  lost: ["is given another subnet of", "Ask again when the pods on the former one are gone"],
  draining: ["is about to leave", "Use another network, or take part again: podnet overlay join"],
  left: ["has left", "Take part again: podnet overlay join"],
};

const sameTexts = (a: readonly string[], b: readonly string[]): boolean => a.join() === b.join();

const pause = (signal: AbortSignal): Promise<void> =>
  delay(againMs, undefined, { signal }).then(
    () => undefined,
    () => undefined,
  );
