import { setTimeout as delay } from "node:timers/promises";
import { type Clock, systemClock } from "../core/clock.ts";
import { isPodnetError, type PodnetError } from "../core/errors.ts";
import type { Answer, Etcd, KeyValue, WatchEvent } from "./etcd.ts";

export type Followed =
  /**
   * All there is. First of all, and whenever it cannot be said what has changed: compare it with
   * what is known.
   */
  | {
      readonly kind: "snapshot";
      /** Another one than before: revisions are not to be compared. */
      readonly cluster: bigint;
      readonly revision: bigint;
      readonly kvs: readonly KeyValue[];
    }
  /** Changes since, in whole revisions, complete and each once. */
  | { readonly kind: "changes"; readonly revision: bigint; readonly events: readonly WatchEvent[] }
  /**
   * etcd cannot be heard: since when (wall time), and why. Again when the reason becomes another
   * one.
   */
  | { readonly kind: "stale"; readonly since: number; readonly reason: PodnetError }
  /** It can be heard again, and nothing had happened. (A snapshot or changes say so as well.) */
  | { readonly kind: "current"; readonly revision: bigint };

export interface FollowOptions {
  /** Ends it, without an error. */
  readonly signal: AbortSignal;
  readonly clock?: Clock;
  readonly random?: () => number;
  readonly pause?: (ms: number, signal: AbortSignal) => Promise<void>;
}

/** The calls that following needs. */
export type Followable = Pick<Etcd, "range" | "watch">;

/**
 * Longest pause between two attempts, milliseconds: while etcd is unreachable, and where it answers
 * and fails anyway. Each is random, so that many hosts do not come at once.
 */
const longestPauseMs = { away: 1000, answering: 10_000 } as const;
const firstPauseMs = 100;
/** An attempt that lasted this long, milliseconds, does not count as a quick failure. */
const steadyMs = 5000;

const wait = async (ms: number, signal: AbortSignal): Promise<void> => {
  await delay(ms, undefined, { signal });
};

/**
 * Follows all keys below a prefix, and never gives up: errors of etcd are reported as `stale` and
 * retried. Continues from the last reported revision; after a compaction, and where etcd is another
 * one or older than it was, with a snapshot. An attempt that ends soon counts as a failure, however
 * it ends: each is followed by a longer pause. Ends when the signal aborts.
 */
export async function* follow(
  etcd: Followable,
  prefix: string,
  options: FollowOptions,
): AsyncGenerator<Followed, void> {
  const { signal, random = Math.random, pause = wait, clock = systemClock } = options;
  const follower = new Follower(etcd, prefix, options);
  for (let failures = 0; !signal.aborted; failures++) {
    const begun = clock.monotonic();
    let most: number = longestPauseMs.away;
    try {
      for await (const followed of follower.once()) {
        most = longestPauseMs.answering;
        if (followed !== undefined) yield followed;
      }
    } catch (thrown) {
      if (signal.aborted) return;
      const reported = follower.failed(thrown);
      if (!isPodnetError(thrown, "ETCD_UNREACHABLE")) most = longestPauseMs.answering;
      if (reported !== undefined) yield reported;
    }
    if (clock.monotonic() - begun >= steadyMs) failures = 0;
    const longest = Math.min(most, firstPauseMs * 2 ** failures);
    await pause(longest * (0.5 + random() / 2), signal).catch(() => {});
  }
}

class Follower {
  readonly #etcd: Followable;
  readonly #prefix: string;
  readonly #signal: AbortSignal;
  readonly #clock: Clock;
  /** Everything up to here was reported; undefined when a snapshot is needed. */
  #known: Answer | undefined;
  /** When etcd was heard last. */
  #heard: number;
  /** Why it is not heard now. */
  #stale: PodnetError | undefined;

  constructor(etcd: Followable, prefix: string, { signal, clock = systemClock }: FollowOptions) {
    this.#etcd = etcd;
    this.#prefix = prefix;
    this.#signal = signal;
    this.#clock = clock;
    this.#heard = clock.now();
  }

  /** One attempt, until it fails. Undefined: etcd answered, without a change. */
  async *once(): AsyncGenerator<Followed | undefined> {
    const signal = this.#signal;
    if (this.#known !== undefined && !(await this.#goesOn(this.#known))) this.#known = undefined;
    if (this.#known === undefined) {
      const { kvs, revision, cluster } = await this.#etcd.range(
        { prefix: this.#prefix },
        { signal },
      );
      this.#known = { revision, cluster };
      this.#hear();
      yield { kind: "snapshot", cluster, revision, kvs };
    }
    const from = this.#known.revision + 1n;
    for await (const watched of this.#etcd.watch({ prefix: this.#prefix }, { from, signal })) {
      if (watched.kind === "alive" && !(await this.#isOf(watched, this.#known))) {
        this.#known = undefined;
        return;
      }
      const wasStale = this.#hear();
      if (watched.kind !== "alive") this.#reach(watched.revision);
      const { revision } = this.#known;
      if (watched.kind === "events") yield { kind: "changes", revision, events: watched.events };
      else yield wasStale ? { kind: "current", revision } : undefined;
    }
  }

  /** The item that reports a failure. Rethrows errors that are not etcd's. */
  failed(thrown: unknown): Followed | undefined {
    if (isPodnetError(thrown, "ETCD_COMPACTED")) {
      this.#known = undefined;
      return undefined;
    }
    if (!isPodnetError(thrown, "ETCD_UNREACHABLE", "ETCD_DENIED", "ETCD_FAILED")) throw thrown;
    if (this.#stale?.code === thrown.code) return undefined;
    this.#stale = thrown;
    return { kind: "stale", since: this.#heard, reason: thrown };
  }

  /**
   * Whether this etcd still has the changes after the known revision. It does not when its data was
   * lost, or restored from an older copy, which a watch would not report: it waits until etcd has
   * come as far. Throws `ETCD_COMPACTED` when they were compacted, which a watch reports only after
   * it is established.
   */
  async #goesOn(known: Answer): Promise<boolean> {
    const look = { limit: 1, keysOnly: true, signal: this.#signal };
    const now = await this.#etcd.range({ prefix: this.#prefix }, look);
    if (now.cluster !== known.cluster || now.revision < known.revision) return false;
    await this.#etcd.range({ prefix: this.#prefix }, { ...look, revision: known.revision });
    return true;
  }

  /**
   * Whether a member has the history that is known. One that is behind may only be slow: the others
   * are asked.
   */
  async #isOf(member: Answer, known: Answer): Promise<boolean> {
    if (member.cluster !== known.cluster) return false;
    return member.revision >= known.revision || (await this.#goesOn(known));
  }

  /** Whether it had been away. */
  #hear(): boolean {
    const wasStale = this.#stale !== undefined;
    this.#stale = undefined;
    this.#heard = this.#clock.now();
    return wasStale;
  }

  /** A member that is behind the others may say less than is known. */
  #reach(revision: bigint): void {
    if (this.#known !== undefined && revision > this.#known.revision)
      this.#known = { ...this.#known, revision };
  }
}
