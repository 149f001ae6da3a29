import type { Clock } from "../../../core/clock.ts";
import type { GrantId, LeaseStore, TimeLeft } from "../../../overlay/store.ts";

/** Of an etcd lease, wall clock, milliseconds. */
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

/** What one look may cost: etcd answers for one lease at a time, and its leader alone. */
export interface LeaseEndsLimits {
  /** Leases that are asked about at the same time. */
  readonly atOnce: number;
  /** Leases that one look asks about at most. */
  readonly most: number;
  /** Longest that a look takes, milliseconds. */
  readonly lookMs: number;
  /** For so long what was answered is not asked again, milliseconds. */
  readonly keptMs: number;
}

const usual: LeaseEndsLimits = { atOnce: 8, most: 1000, lookMs: 1500, keptMs: 30_000 };

/**
 * When the leases of other hosts end, asked of etcd when somebody wants to know and never
 * otherwise. A look costs a bounded number of calls and a bounded time: of what it has not come to
 * the next one asks first, and etcd that is away fails nobody. What is not known is absent.
 */
export class LeaseEnds {
  readonly #parts: LeaseEndsParts;
  readonly #limits: LeaseEndsLimits;
  readonly #known = new Map<GrantId, LeaseEnd & { readonly askedAt: number }>();
  /** One look at a time, whoever asks. */
  #looking: Promise<void> | undefined;

  constructor(parts: LeaseEndsParts) {
    this.#parts = parts;
    this.#limits = { ...usual, ...parts.limits };
  }

  /** Of those that are known, after a look. */
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

  /** Unknown ones first, then those that were asked about the longest time ago. */
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
