import type { Clock } from "../../../core/clock.ts";
import type { GrantId, LeaseStore, TimeLeft } from "../../../overlay/store.ts";

/** The end of an etcd lease, by the wall clock, in milliseconds. */
export interface LeaseEnd {
  readonly endsAt: number;
  /** When its time began anew: it was granted or renewed then. */
  readonly renewedAt: number;
}

export interface LeaseEndsParts {
  readonly store: Pick<LeaseStore, "timeLeft">;
  readonly clock: Clock;
  readonly limits?: Partial<LeaseEndsLimits>;
}

/** The limits of one look: etcd answers for one lease at a time, and only its leader answers. */
export interface LeaseEndsLimits {
  /** The number of leases that are queried concurrently. */
  readonly atOnce: number;
  /** The largest number of leases that one look queries. */
  readonly most: number;
  /** Longest that a look takes, milliseconds. */
  readonly lookMs: number;
  /** How long an answer is cached, in milliseconds. */
  readonly keptMs: number;
}

const usual: LeaseEndsLimits = { atOnce: 8, most: 1000, lookMs: 1500, keptMs: 30_000 };

/**
 * The ends of other hosts' leases, queried from etcd only on request. A look has a bounded number
 * of calls and a bounded time: the next look starts with the leases that it did not reach, and an
 * unreachable etcd causes no failure. Unknown ends are absent.
 */
export class LeaseEnds {
  readonly #parts: LeaseEndsParts;
  readonly #limits: LeaseEndsLimits;
  readonly #known = new Map<GrantId, LeaseEnd & { readonly askedAt: number }>();
  /** The current look; all callers share it. */
  #looking: Promise<void> | undefined;

  constructor(parts: LeaseEndsParts) {
    this.#parts = parts;
    this.#limits = { ...usual, ...parts.limits };
  }

  /** Returns the known ends of these leases, after a look. */
  async of(grants: ReadonlySet<GrantId>): Promise<ReadonlyMap<GrantId, LeaseEnd>> {
    for (const grant of this.#known.keys()) if (!grants.has(grant)) this.#known.delete(grant);
    this.#looking ??= this.#look(grants).finally(() => {
      this.#looking = undefined;
    });
    await this.#looking;
    return this.#known;
  }

  async #look(grants: ReadonlySet<GrantId>): Promise<void> {
    const { atOnce, lookMs } = this.#limits;
    const due = this.#due(grants).values();
    const limit = AbortSignal.timeout(lookMs);
    let away = false;
    const ask = async (): Promise<void> => {
      for (const grant of due) {
        if (limit.aborted || away) return;
        away = !(await this.#ask(grant, limit));
      }
    };
    await Promise.all(Array.from({ length: atOnce }, ask));
  }

  /** The leases to query: unknown ones first, then those whose answer is oldest. */
  #due(grants: ReadonlySet<GrantId>): GrantId[] {
    const { most, keptMs } = this.#limits;
    const now = this.#parts.clock.monotonic();
    const askedAt = (grant: GrantId): number => this.#known.get(grant)?.askedAt ?? -Infinity;
    return [...grants]
      .filter((grant) => now - askedAt(grant) >= keptMs)
      .sort((a, b) => (askedAt(a) < askedAt(b) ? -1 : askedAt(a) > askedAt(b) ? 1 : 0))
      .slice(0, most);
  }

  /** Whether etcd has answered: where it has not, the others need not be asked. */
  async #ask(grant: GrantId, signal: AbortSignal): Promise<boolean> {
    const { store, clock } = this.#parts;
    let left: TimeLeft | undefined;
    try {
      left = await store.timeLeft(grant, signal);
    } catch {
      return false;
    }
    // One that has ended is followed by the end of its key.
    if (left === undefined) this.#known.delete(grant);
    else {
      const endsAt = clock.now() + left.seconds * 1000;
      const renewedAt = endsAt - left.grantedSeconds * 1000;
      this.#known.set(grant, { endsAt, renewedAt, askedAt: clock.monotonic() });
    }
    return true;
  }
}
