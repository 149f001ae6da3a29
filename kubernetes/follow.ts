import { setTimeout as delay } from "node:timers/promises";
import { type Clock, systemClock } from "../core/clock.ts";
import { isPodnetError, type PodnetError } from "../core/errors.ts";
import { retryAfterOf } from "./errors.ts";
import type { KubeClient } from "./client.ts";
import type { KubeObject } from "./objects.ts";

export type Followed =
  /**
   * All objects. First of all, and whenever the API server cannot say what has changed: compare it
   * with what is known.
   */
  | { readonly kind: "snapshot"; readonly objects: readonly KubeObject[] }
  | { readonly kind: "put"; readonly object: KubeObject }
  | { readonly kind: "delete"; readonly object: KubeObject }
  /** The API server cannot be heard, and why. Again when the reason becomes another one. */
  | { readonly kind: "stale"; readonly reason: PodnetError }
  /** It can be heard again. (A snapshot says so as well.) */
  | { readonly kind: "current" };

export interface FollowOptions {
  /** Ends it, without an error. */
  readonly signal: AbortSignal;
  /** Names the requests in failpoints and errors: `nodes`. */
  readonly what: string;
  readonly clock?: Clock;
  readonly random?: () => number;
  readonly pause?: (ms: number, signal: AbortSignal) => Promise<void>;
}

/** The calls that following needs. */
export type Followable = Pick<KubeClient, "list" | "watch">;

/**
 * Longest pause between two attempts, milliseconds: while the API server is unreachable, and where
 * it answers and fails anyway. Each is random, so that many hosts do not come at once.
 */
const longestPauseMs = { away: 2000, answering: 15_000 } as const;
const firstPauseMs = 100;
/** An attempt that lasted this long, milliseconds, does not count as a quick failure. */
const steadyMs = 5000;

const wait = async (ms: number, signal: AbortSignal): Promise<void> => {
  await delay(ms, undefined, { signal });
};

/**
 * Follows all objects at a path, and never gives up: errors of the API server are reported as
 * `stale` and retried. A watch goes on from the last version; when the API server no longer has the
 * changes since then, all objects are listed again. An attempt that ends soon counts as a failure,
 * however it ends: each is followed by a longer pause. Ends when the signal aborts.
 */
export async function* follow(
  client: Followable,
  path: string,
  options: FollowOptions,
): AsyncGenerator<Followed, void> {
  const { signal, random = Math.random, pause = wait, clock = systemClock } = options;
  const follower = new Follower(client, path, options);
  for (let failures = 0; !signal.aborted; failures++) {
    const begun = clock.monotonic();
    let longest: number = longestPauseMs.away;
    let askedMs = 0;
    try {
      for await (const followed of follower.once()) {
        longest = longestPauseMs.answering;
        if (followed !== undefined) yield followed;
      }
    } catch (thrown) {
      if (signal.aborted) return;
      askedMs = retryAfterOf(thrown) ?? 0;
      const reported = follower.failed(thrown);
      if (!isPodnetError(thrown, "KUBERNETES_UNREACHABLE")) longest = longestPauseMs.answering;
      if (reported !== undefined) yield reported;
    }
    if (clock.monotonic() - begun >= steadyMs) failures = 0;
    const most = Math.min(longest, firstPauseMs * 2 ** failures);
    // A busy server says when to come; all of its callers at that moment are too many again.
    const ms = askedMs + most * (0.5 + random() / 2);
    await pause(ms, signal).catch(() => {});
  }
}

class Follower {
  readonly #client: Followable;
  readonly #path: string;
  readonly #options: FollowOptions;
  /** Everything up to here was reported; undefined when a list is needed. */
  #known: string | undefined;
  /** Why the API server is not heard now. */
  #stale: PodnetError | undefined;

  constructor(client: Followable, path: string, options: FollowOptions) {
    this.#client = client;
    this.#path = path;
    this.#options = options;
  }

  /** One attempt, until it ends. Undefined: the API server has answered, without a change. */
  async *once(): AsyncGenerator<Followed | undefined> {
    const { signal, what } = this.#options;
    if (this.#known === undefined) {
      const listed = await this.#client.list(this.#path, `list ${what}`, signal);
      this.#known = listed.resourceVersion;
      this.#stale = undefined;
      yield { kind: "snapshot", objects: listed.items };
    }
    const watch = this.#client.watch(this.#path, this.#known, `watch ${what}`, signal);
    for await (const event of watch) {
      const wasStale = this.#stale !== undefined;
      this.#stale = undefined;
      if (wasStale) yield { kind: "current" };
      switch (event.kind) {
        case "put":
        case "delete":
          // Before it is reported: whoever reads may end here, and go on later.
          this.#known = event.object.resourceVersion;
          yield event;
          break;
        case "bookmark":
          this.#known = event.resourceVersion;
          yield undefined;
          break;
        case "open":
          yield undefined;
      }
    }
  }

  /** The item that reports a failure. Rethrows errors that are not the API server's. */
  failed(thrown: unknown): Followed | undefined {
    const expired = isPodnetError(thrown, "KUBERNETES_EXPIRED");
    if (expired && this.#known !== undefined) {
      this.#known = undefined;
      return undefined;
    }
    // A list whose parts expire, again and again, leaves all as it was.
    if (
      !expired &&
      !isPodnetError(thrown, "KUBERNETES_UNREACHABLE", "KUBERNETES_DENIED", "KUBERNETES_FAILED")
    )
      throw thrown;
    // What cannot be read once may never be: the next attempt begins with a list.
    if (thrown.code === "KUBERNETES_FAILED") this.#known = undefined;
    if (this.#stale?.code === thrown.code) return undefined;
    this.#stale = thrown;
    return { kind: "stale", reason: thrown };
  }
}
