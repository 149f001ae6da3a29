import type { BackendCheck } from "../../../api/service-spec.ts";
import type { Ip } from "../../../core/address.ts";
import { guard, guarded } from "../../../core/guard.ts";
import type { ServiceName } from "../../../core/names.ts";
import type { Log } from "../../../linux/log.ts";
import { probe as ask, type ProbeTarget } from "./probe.ts";
import { judge, unasked, type Verdict } from "./verdict.ts";

/** A backend that is to be asked. */
export interface Checked {
  readonly service: ServiceName;
  readonly address: Ip;
  readonly port: number;
  readonly check: BackendCheck;
}

export interface HealthChecksParts {
  /** Called when a backend becomes healthy or unhealthy. */
  readonly changed: () => void;
  /** Called with a backend that became healthy, or unhealthy, before `changed`. */
  readonly turned?: (backend: Checked, verdict: Verdict) => void;
  readonly log: Pick<Log, "info">;
  /** Asks one; a real connection unless given. */
  readonly probe?: (target: ProbeTarget, signal: AbortSignal) => Promise<string | undefined>;
  /** 0 to 1, by chance unless given. */
  readonly draw?: () => number;
}

/** Backends asked at a time. The others wait, and are asked in their order. */
const mostAtOnce = 64;
/** Milliseconds within which a new backend is asked for the first time. */
const firstMs = 1000;
/** The part of an interval by which it is longer or shorter, so that questions spread out. */
const jitter = 0.1;

interface Watched extends Checked {
  verdict: Verdict;
  timer: NodeJS.Timeout | undefined;
  readonly ended: AbortController;
}

/** Asks backends of services, each again and again, whether they serve. */
export class HealthChecks implements Disposable {
  readonly #parts: HealthChecksParts;
  readonly #watched = new Map<string, Watched>();
  #waiting: Watched[] = [];
  #asking = 0;

  constructor(parts: HealthChecksParts) {
    this.#parts = parts;
  }

  /** Asks these from now on, and no others. One whose check is another begins anew. */
  follow(backends: readonly Checked[]): void {
    const wanted = new Map(backends.map((each) => [keyOf(each), each]));
    for (const [key, watched] of this.#watched)
      if (!wanted.has(key)) {
        this.#watched.delete(key);
        end(watched);
      }
    this.#waiting = this.#waiting.filter(({ ended }) => !ended.signal.aborted);
    for (const [key, each] of wanted) {
      if (this.#watched.has(key)) continue;
      const watched = {
        ...each,
        verdict: unasked,
        timer: undefined,
        ended: new AbortController(),
      };
      this.#watched.set(key, watched);
      this.#after(watched, this.#draw() * Math.min(firstMs, each.check.intervalS * 1000));
    }
  }

  /** What is known of a backend; undefined for one that is not followed. */
  of(backend: Checked): Verdict | undefined {
    return this.#watched.get(keyOf(backend))?.verdict;
  }

  [Symbol.dispose](): void {
    this.follow([]);
  }

  #draw(): number {
    return (this.#parts.draw ?? Math.random)();
  }

  #after(watched: Watched, ms: number): void {
    watched.timer = setTimeout(
      guarded("services", () => {
        this.#waiting.push(watched);
        this.#next();
      }),
      ms,
    );
    watched.timer.unref();
  }

  #next(): void {
    while (this.#asking < mostAtOnce) {
      const watched = this.#waiting.shift();
      if (watched === undefined) return;
      this.#asking++;
      void guard("services", () => this.#ask(watched));
    }
  }

  async #ask(watched: Watched): Promise<void> {
    const { address, port, check, ended } = watched;
    const { path, timeoutS, intervalS } = check;
    try {
      const target = { address, port, timeoutS, ...(path !== undefined && { path }) };
      const why = await (this.#parts.probe ?? ask)(target, ended.signal);
      if (ended.signal.aborted) return;
      this.#judge(watched, why);
      this.#after(watched, intervalS * 1000 * (1 - jitter + 2 * jitter * this.#draw()));
    } finally {
      this.#asking--;
      this.#next();
    }
  }

  #judge(watched: Watched, why: string | undefined): void {
    const { service, address, port, verdict: before } = watched;
    const verdict = judge(before, why, watched.check);
    watched.verdict = verdict;
    if (verdict.healthy === before.healthy) return;
    const { healthy } = verdict;
    this.#parts.log.info(
      { service, address, port, ...(why !== undefined && { why }) },
      healthy ? "A backend of a service is healthy" : "A backend of a service is unhealthy",
    );
    this.#parts.turned?.(watched, verdict);
    this.#parts.changed();
  }
}

const keyOf = ({ service, address, port, check }: Checked): string =>
  JSON.stringify([service, address, port, check]);

function end({ timer, ended }: Watched): void {
  clearTimeout(timer);
  ended.abort();
}
