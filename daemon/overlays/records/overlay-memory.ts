import type { Log } from "../../../linux/log.ts";
import { WorkQueue } from "../../reconcile/work-queue.ts";
import type { Database } from "../../store/database.ts";
import { type OverlayRecord, overlayRecord, writeOverlay } from "../store.ts";

/** Until what could not be written down is tried again. */
const backoff = { firstMs: 500, longestMs: 2000 } as const;

/** What the next start is to know of one overlay, kept alongside its row. */
export class OverlayMemory implements Disposable {
  readonly #db: Database;
  readonly #name: string;
  #record: OverlayRecord;
  /** As it was written last. */
  #written: string;
  readonly #queue: WorkQueue<"row">;

  constructor(db: Database, name: string, log: Pick<Log, "warn">) {
    this.#db = db;
    this.#name = name;
    this.#queue = new WorkQueue({
      place: "overlay",
      backoff,
      onDegraded: (_, { error }) =>
        log.warn(
          { overlay: name, err: error },
          "What is known of an overlay cannot be written down yet",
        ),
    });
    this.#record = overlayRecord(db, name);
    this.#written = JSON.stringify(this.#record);
  }

  get record(): OverlayRecord {
    return this.#record;
  }

  /** It is so from when it is written down; throws when it cannot be, and then it is not so. */
  remember(more: OverlayRecord): void {
    this.#write({ ...this.#record, ...more });
  }

  /** It is so, whether or not it can be written down: that is tried again until it can. */
  note(more: OverlayRecord): void {
    this.#keep({ ...this.#record, ...more });
  }

  /** There is nothing more to go on with. */
  forgetLease(): void {
    const { subnets: _subnets, desired: _desired, ...kept } = this.#record;
    this.#write(kept);
  }

  /** The overlay is no more; by what others knew this host stays, should it come again. */
  forget(): void {
    const { macs } = this.#record;
    this.#write(macs === undefined ? {} : { macs });
  }

  /** What could not be written is tried once more. */
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
