import type { Clock } from "../core/clock.ts";
import { TokenBucket } from "../core/token-bucket.ts";
import type { RelayVerdict } from "./messages.ts";

/** Reports of a pod's verdicts at once, in a second; what comes above is counted together. */
const reportRate = { perSecond: 10, burst: 20 } as const;
/** Kinds of verdicts of a pod that are told apart while they are counted together. */
const mostKinds = 200;

/**
 * Verdicts on their way to podnetd. Each is counted; a pod that has many costs no more than its
 * rate, and what the receiver cannot take waits as counts.
 */
export class Verdicts {
  readonly #clock: Clock;
  /** False when the receiver takes no more now: then the verdict is kept. */
  readonly #send: (verdict: RelayVerdict) => boolean;
  readonly #buckets = new Map<string, TokenBucket>();
  /** By pod and kind. */
  readonly #waiting = new Map<string, Map<string, RelayVerdict>>();

  constructor(clock: Clock, send: (verdict: RelayVerdict) => boolean) {
    this.#clock = clock;
    this.#send = send;
  }

  add(verdict: Omit<RelayVerdict, "count">): void {
    const one = { ...verdict, count: 1 };
    if (!this.#waiting.has(verdict.pod) && this.#bucket(verdict.pod).take() && this.#send(one))
      return;
    this.#wait(one);
  }

  /** Sends what waits, as far as rates and the receiver let it; call it every second. */
  flush(): void {
    for (const [pod, kinds] of this.#waiting) {
      for (const [kind, verdict] of kinds) {
        if (!this.#bucket(pod).take() || !this.#send(verdict)) break;
        kinds.delete(kind);
      }
      if (kinds.size === 0) this.#waiting.delete(pod);
    }
    for (const [pod, bucket] of this.#buckets) if (bucket.full) this.#buckets.delete(pod);
  }

  #wait(verdict: RelayVerdict): void {
    let kinds = this.#waiting.get(verdict.pod);
    if (kinds === undefined) this.#waiting.set(verdict.pod, (kinds = new Map()));
    const { count: _count, ...own } = verdict;
    const { to: _to, ...coarse } = { ...own, name: null };
    const fits = kinds.has(kindOf(own)) || kinds.size < mostKinds;
    const kind = fits ? own : coarse;
    const before = kinds.get(kindOf(kind));
    kinds.set(kindOf(kind), { ...kind, count: verdict.count + (before?.count ?? 0) });
  }

  #bucket(pod: string): TokenBucket {
    let bucket = this.#buckets.get(pod);
    if (bucket === undefined)
      this.#buckets.set(pod, (bucket = new TokenBucket(reportRate, this.#clock)));
    return bucket;
  }
}

const kindOf = ({ verdict, policy, rule, reason, name, to }: Omit<RelayVerdict, "count">): string =>
  JSON.stringify([verdict, policy, rule, reason, name, to?.ip, to?.port]);
