import {
  type Cidr,
  type Family,
  familyBits,
  familyOf,
  type Ip,
  type Ipv4,
  ipFromBigInt,
  ipOf,
  ipToBigInt,
  lengthOf,
  overlaps,
  rangeOf,
} from "../core/address.ts";
import type { OverlayConfig, SubnetSpace } from "./flannel/config.ts";
import type { Subnets } from "./flannel/key.ts";
import type { Entry } from "./registry.ts";

/**
 * Free subnets among which one is drawn: few races are lost, and a network fills up from its
 * beginning.
 */
const drawnFrom = 100;
/**
 * So many times more after a race that is lost, and again after the second: thousands who come at
 * once find room.
 */
const widening = 8;
const mostWidenings = 2;

/**
 * 240.0.0.0, of an IPv4 range that no host can have. A host of an overlay without IPv4 writes this
 * and the number of its subnet as its public IPv4 address: flanneld, which looks for its own lease
 * by that address alone and has 0.0.0.0, leaves it be.
 */
const standInBase = 240n << 24n;
/** The number of subnets that have a placeholder address. */
const standIns = 1n << 28n;

/** Whether the subnets are ones that the configuration would hand out. */
export const fits = (subnets: Subnets, config: OverlayConfig): boolean =>
  sameFamilies(subnets, config) &&
  inSpace(subnets.v4, config.v4) &&
  inSpace(subnets.v6, config.v6) &&
  (subnets.v6 === undefined ||
    config.v4 !== undefined ||
    standInAddress(subnets.v6, config) !== undefined);

/** Whether the subnets are of the families that the configuration has. */
export const sameFamilies = (subnets: Subnets, config: OverlayConfig): boolean =>
  (subnets.v4 === undefined) === (config.v4 === undefined) &&
  (subnets.v6 === undefined) === (config.v6 === undefined);

/** Whether two hosts' subnets share an address. */
export const meet = (a: Subnets, b: Subnets): boolean =>
  bothOverlap(a.v4, b.v4) || bothOverlap(a.v6, b.v6);
const bothOverlap = (a: Cidr | undefined, b: Cidr | undefined): boolean =>
  a !== undefined && b !== undefined && overlaps(a, b);

function inSpace(subnet: Cidr | undefined, space: SubnetSpace | undefined): boolean {
  if (subnet === undefined || space === undefined) return subnet === space;
  const base = ipToBigInt(ipOf(subnet));
  return (
    familyOf(subnet) === familyOf(space.network) &&
    lengthOf(subnet) === space.length &&
    base >= ipToBigInt(space.first) &&
    base <= ipToBigInt(space.last)
  );
}

/**
 * The placeholder for a public IPv4 address if the overlay has no IPv4. It is unique for each
 * subnet, and therefore for each host. Undefined beyond the 2^28th subnet of a network.
 */
export function standInAddress(subnet: Cidr, { v6 }: OverlayConfig): Ipv4 | undefined {
  if (v6 === undefined) return undefined;
  const { first } = rangeOf(v6.network);
  const number = (ipToBigInt(ipOf(subnet)) - first) >> BigInt(128 - v6.length);
  return number < 0n || number >= standIns
    ? undefined
    : (ipFromBigInt(4, standInBase + number) as Ipv4);
}

export interface Choice {
  readonly config: OverlayConfig;
  /** The host's earlier subnets: taken again, each family by itself, if they are free. */
  readonly previous: Subnets | undefined;
  /** All keys; those in `without` count as free. */
  readonly leases: Iterable<Entry>;
  readonly without?: ReadonlySet<string>;
  /** From 0 to below 1. */
  readonly draw: number;
  /** The number of races lost before. Default: 0. */
  readonly losses?: number;
}

/** Chooses a host's subnets. Undefined when no free one is left. */
export function chooseSubnets(choice: Choice): Subnets | undefined {
  const { config } = choice;
  const taken: { readonly v4: Cidr[]; readonly v6: Cidr[] } = { v4: [], v6: [] };
  for (const entry of choice.leases) {
    if (entry.kind === "skipped" || choice.without?.has(entry.key) === true) continue;
    const { v4, v6 } = entry.subnets;
    if (v4 !== undefined) taken.v4.push(v4);
    if (v6 !== undefined) taken.v6.push(v6);
  }
  const most = drawnFrom * widening ** Math.min(choice.losses ?? 0, mostWidenings);
  const pick = (family: "v4" | "v6"): Cidr | undefined => {
    const space = config[family];
    if (space === undefined) return undefined;
    const previous = choice.previous?.[family];
    if (
      previous !== undefined &&
      inSpace(previous, space) &&
      !taken[family].some((one) => overlaps(one, previous))
    )
      return previous;
    const numbers = new Numbers(space, familyOf(space.network));
    const free = numbers
      .free(taken[family], most)
      .filter(
        (number) =>
          config.v4 !== undefined || standInAddress(numbers.subnet(number), config) !== undefined,
      );
    // The families are drawn separately: the second one by the digits of the number that the first
    // did not use.
    const draw = family === "v4" ? choice.draw : (choice.draw * drawnFrom) % 1;
    const drawn = free[Math.floor(draw * free.length)];
    return drawn === undefined ? undefined : numbers.subnet(drawn);
  };
  const v4 = pick("v4");
  const v6 = pick("v6");
  if (config.v4 === undefined) return v6 && { v4: undefined, v6 };
  return v4 === undefined || (config.v6 !== undefined && v6 === undefined) ? undefined : { v4, v6 };
}

/** The subnets of a space by number, from 0 for the first. */
class Numbers {
  readonly #space: SubnetSpace;
  readonly #family: Family;
  readonly #base: bigint;
  readonly #shift: bigint;
  /** The highest number, limited to safe integers, which no overlay will use up. */
  readonly last: number;

  constructor(space: SubnetSpace, family: Family) {
    this.#space = space;
    this.#family = family;
    this.#base = ipToBigInt(space.first);
    this.#shift = BigInt(familyBits(family) - space.length);
    const highest = (ipToBigInt(space.last) - this.#base) >> this.#shift;
    this.last = Number(smaller(highest, BigInt(Number.MAX_SAFE_INTEGER)));
  }

  /** The first free numbers, at most `most`. */
  free(taken: readonly Cidr[], most: number): number[] {
    const busy = taken.flatMap((subnet) => this.covered(subnet)).sort((a, b) => a.from - b.from);
    const free: number[] = [];
    let at = 0;
    for (const { from, to } of [...busy, { from: Infinity, to: Infinity }]) {
      for (; at < from && at <= this.last && free.length < most; at++) free.push(at);
      if (at > this.last || free.length >= most) break;
      at = Math.max(at, to + 1);
    }
    return free;
  }

  /** Which numbers a subnet of any size lies on. */
  covered(subnet: Cidr): { from: number; to: number }[] {
    const { first, last } = rangeOf(subnet);
    const from = (first - this.#base) >> this.#shift;
    const to = (last - this.#base) >> this.#shift;
    if (to < 0n || from > BigInt(this.last)) return [];
    return [{ from: Math.max(0, Number(from)), to: Number(smaller(to, BigInt(this.last))) }];
  }

  subnet(number: number): Cidr {
    const base: Ip = ipFromBigInt(this.#family, this.#base + (BigInt(number) << this.#shift));
    return `${base}/${this.#space.length}` as Cidr;
  }
}

const smaller = (a: bigint, b: bigint): bigint => (a < b ? a : b);
