import type { Clock } from "../../../core/clock.ts";
import type { PodId } from "../../../core/names.ts";
import type { Journal } from "../../events/journal.ts";
import type { Database } from "../../store/database.ts";
import { essential, ofMachine } from "./commit-kinds.ts";
import type { PodPlan } from "./pod-plan.ts";
import { getProcess, type ProcessRow, putProcess } from "./process-rows.ts";

/** The records of main processes. Each method is one transaction with the event that reports it. */
export class ProcessRecords {
  readonly #db: Database;
  readonly #journal: Journal;
  readonly #clock: Clock;

  constructor({ db, journal, clock }: { db: Database; journal: Journal; clock: Clock }) {
    this.#db = db;
    this.#journal = journal;
    this.#clock = clock;
  }

  /** What is known of a pod's main process; undefined before its first start. */
  get(id: PodId): ProcessRow | undefined {
    return getProcess(this.#db, id);
  }

  /** The main process is about to be started: answers which start of it this is. */
  starts({ podId, name }: PodPlan): number {
    const last = this.get(podId);
    const byPolicy = last?.nextMs !== undefined;
    const run = (last?.run ?? 0) + 1;
    this.#journal.transact(
      "process",
      (emit) => {
        putProcess(this.#db, podId, {
          run,
          startedMs: this.#clock.now(),
          endedMs: undefined,
          end: undefined,
          restarts: byPolicy ? last.restarts + 1 : 0,
          inARow: byPolicy ? last.inARow : 0,
          nextMs: undefined,
        });
        const data = { text: `main process starts (start ${run})` };
        emit({ kind: "updated", podId, podName: name, data });
      },
      ofMachine,
    );
    return run;
  }

  /** The main process is not there any more, if there was one: it ended unseen, unless reported. */
  gone(plan: Pick<PodPlan, "podId" | "name">): void {
    const row = this.get(plan.podId);
    if (row === undefined || row.endedMs !== undefined) return;
    this.set(plan, { endedMs: this.#clock.now() }, "main process gone");
  }

  /** A caller decides what becomes of the pod: its restart policy does not, for now. */
  forgetNextStart(plan: Pick<PodPlan, "podId" | "name">): void {
    if (this.get(plan.podId)?.nextMs === undefined) return;
    this.set(plan, { nextMs: undefined }, "main process is not started again");
  }

  /** Changes what is known of the main process: its end, and its next start. */
  set(
    { podId, name }: Pick<PodPlan, "podId" | "name">,
    change: Partial<Pick<ProcessRow, "end" | "endedMs" | "inARow" | "nextMs">>,
    text: string,
  ): void {
    const row = this.get(podId);
    if (row === undefined) return;
    this.#journal.transact(
      "process",
      (emit) => {
        putProcess(this.#db, podId, { ...row, ...change });
        emit({ kind: "updated", podId, podName: name, data: { text } });
      },
      essential,
    );
  }
}
