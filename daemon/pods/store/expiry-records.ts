import type { Clock } from "../../../core/clock.ts";
import type { PodId } from "../../../core/names.ts";
import type { Journal } from "../../events/journal.ts";
import type { Database } from "../../store/database.ts";
import { essential } from "./commit-kinds.ts";
import { deleteExpiry, expiredPods, getExpiry, putExpiry } from "./expiry-rows.ts";
import type { PodRow } from "./pod-row.ts";

/**
 * The records of when the time of pods is over. Each method that changes one is a transaction with
 * the event that reports it.
 */
export class ExpiryRecords {
  readonly #db: Database;
  readonly #journal: Journal;
  readonly #clock: Clock;

  constructor({ db, journal, clock }: { db: Database; journal: Journal; clock: Clock }) {
    this.#db = db;
    this.#journal = journal;
    this.#clock = clock;
  }

  /** When a pod's time is over; undefined: never, or it was ended by it. */
  of(id: PodId): number | undefined {
    return getExpiry(this.#db, id);
  }

  /** The pods whose time is over. */
  over(): PodId[] {
    return expiredPods(this.#db, this.#clock.now());
  }

  /** A caller starts the pod: its time begins anew. */
  renew({ id, name, spec }: Pick<PodRow, "id" | "name" | "spec">): void {
    const { ttlMs } = spec.lifetime ?? {};
    if (ttlMs === undefined) return;
    this.#journal.transact(
      "expiry",
      (emit) => {
        putExpiry(this.#db, id, this.#clock.now() + ttlMs);
        const text = `its time begins anew: ${ttlMs / 1000} s`;
        emit({ kind: "updated", podId: id, podName: name, data: { text } });
      },
      essential,
    );
  }

  /** The pod has been ended by its time. */
  drop({ id, name }: Pick<PodRow, "id" | "name">, text: string): void {
    this.#journal.transact(
      "expiry",
      (emit) => {
        deleteExpiry(this.#db, id);
        emit({ kind: "updated", podId: id, podName: name, data: { text } });
      },
      essential,
    );
  }
}
