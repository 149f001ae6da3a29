import type { Log } from "../../../linux/log.ts";
import { WorkQueue } from "../../reconcile/work-queue.ts";
import type { Database } from "../../store/database.ts";
import { type OverlayRecord, overlayRecord, writeOverlay } from "../store.ts";

/** The wait before a failed write is retried. */
const backoff = { firstMs: 500, longestMs: 2000 } as const;

/** The data about one overlay for the next start, stored with its row. */
export class OverlayMemory implements Disposable {
  readonly #db: Database;
  readonly #name: string;
  #record: OverlayRecord;
  /** The text that was written last. */
  #written: string;
  readonly #queue: WorkQueue<"row">;

  constructor(db: Database, name: string, log: Pick<Log, "warn">) {
    this.#db = db;
    this.#name = name;
    this.#queue = new WorkQueue({
      name: "overlay-rows",
      backoff,
      onDegraded: (_, { error }) =>
        log.warn({ overlay: name, err: error }, "Failed to record an overlay's state; retrying"),
    });
    this.#record = overlayRecord(db, name);
    this.#written = JSON.stringify(this.#record);
  }

  get record(): OverlayRecord {
    return this.#record;
  }

  /**
   * Changes the record, and writes it at once. Throws if the write fails; then the record is
   * unchanged.
   */
  remember(more: OverlayRecord): void {
    this.#write({ ...this.#record, ...more });
  }

  /**
   * Changes the record, even if it cannot be written now: the write is retried until it succeeds.
   */
  note(more: OverlayRecord): void {
    this.#keep({ ...this.#record, ...more });
  }

  /** Forgets the lease: the next start has nothing to continue. */
  forgetLease(): void {
    const { subnets: _subnets, desired: _desired, ...kept } = this.#record;
    this.#write(kept);
  }

  /**
   * Forgets the overlay, which no longer exists. The data by which other hosts know this one stay,
   * in case the overlay is created again.
   */
  forget(): void {
    const { macs } = this.#record;
    this.#write(macs === undefined ? {} : { macs });
  }

  /** Retries a failed write once more. */
  [Symbol.dispose](): void {
    if (this.#queue.condition("row").status === "degraded") this.#keep(this.#record);
    void this.#queue.close();
  }

  #write(record: OverlayRecord): void {
    const json = JSON.stringify(record);
    if (json !== this.#written) writeOverlay(this.#db, this.#name, record);
    this.#record = record;
    this.#written = json;
  }

  #keep(record: OverlayRecord): void {
    this.#record = record;
    try {
      this.#write(record);
      this.#queue.forget("row");
    } catch (thrown) {
      this.#queue.failed("row", async () => this.#write(this.#record), thrown);
    }
  }
}
