import { hash } from "node:crypto";

/** Numbers that look random and are repeated by their seed (mulberry32). */
export class Random {
  #state: number;

  constructor(seed: number) {
    this.#state = seed | 0;
  }

  /** A whole number from 0 up to, not including, `limit`. */
  below(limit: number): number {
    this.#state = (this.#state + 0x6d2b79f5) | 0;
    let t = Math.imul(this.#state ^ (this.#state >>> 15), 1 | this.#state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return Math.floor((((t ^ (t >>> 14)) >>> 0) / 2 ** 32) * limit);
  }

  /** True once in `many`. */
  once(many: number): boolean {
    return this.below(many) === 0;
  }

  pick<T>(list: readonly T[]): T {
    return list[this.below(list.length)] as T;
  }

  bytes(length: number): Uint8Array {
    return Uint8Array.from({ length }, () => this.below(256));
  }

  /** `count` items, as `make` makes them. */
  list<T>(count: number, make: () => T): T[] {
    return Array.from({ length: count }, make);
  }
}

/** The seed of this run: PODNET_SEED, or a new one. */
export function runSeed(): number {
  const given = process.env["PODNET_SEED"];
  return given === undefined ? Date.now() % 0x7fffffff : Number(given) | 0;
}

/** A number that is always the same for the same bytes: what an input decides about its own run. */
export const digest = (bytes: Uint8Array): number =>
  Number.parseInt(hash("sha1", bytes).slice(0, 8), 16);
