import type { Clock } from "../../../core/clock.ts";
import type { Journal } from "../../events/journal.ts";
import type { Checked } from "./health-checks.ts";
import type { Verdict } from "./verdict.ts";

/** Events a minute, at most: backends that turn again and again push nothing else out. */
const mostAMinute = 60;
const minuteMs = 60_000;

export interface HealthJournalParts {
  readonly journal: Pick<Journal, "emit">;
  readonly clock: Pick<Clock, "monotonic">;
}

/** How often backends became healthy or unhealthy; watchers hear of it by events. */
export class HealthJournal {
  readonly #parts: HealthJournalParts;
  readonly #counts = new Map<string, { service: string; healthy: boolean; count: number }>();
  #sinceMs = -Infinity;
  #emitted = 0;

  constructor(parts: HealthJournalParts) {
    this.#parts = parts;
  }

  /** Changes by service and by what a backend became, since the start. */
  get counts(): readonly {
    readonly service: string;
    readonly healthy: boolean;
    readonly count: number;
  }[] {
    return [...this.#counts.values()];
  }

  /** Forgets services that are no more. */
  keep(services: ReadonlySet<string>): void {
    for (const [key, { service }] of this.#counts)
      if (!services.has(service)) this.#counts.delete(key);
  }

  turned({ service, address, port }: Checked, { healthy, why }: Verdict): void {
    const key = `${service} ${healthy}`;
    const count = (this.#counts.get(key)?.count ?? 0) + 1;
    this.#counts.set(key, { service, healthy, count });
    const now = this.#parts.clock.monotonic();
    if (now - this.#sinceMs >= minuteMs) {
      this.#sinceMs = now;
      this.#emitted = 0;
    }
    if (this.#emitted++ >= mostAMinute) return;
    const state = healthy ? "healthy" : `unhealthy${why === undefined ? "" : `: ${why}`}`;
    const text = `Backend ${address} port ${port} of service "${service}" is ${state}`;
    this.#parts.journal.emit({ kind: "service", data: { text } });
  }
}
