import { guarded } from "../../../core/guard.ts";
import { toPodnetError } from "../../../core/errors.ts";
import type { Log } from "../../../linux/log.ts";
import type { Database } from "../../store/database.ts";
import { type OverlayRecord, overlayRecord, writeOverlay } from "../store.ts";

/** Until what could not be written down is tried again, milliseconds. */
const againMs = 2000;

/** What the next start is to know of one overlay, kept alongside its row. */
export class OverlayMemory implements Disposable {
  readonly #db: Database;
  readonly #name: string;
  readonly #log: Pick<Log, "warn">;
  #record: OverlayRecord;
  /** As it was written last. */
  #written: string;
  #again: NodeJS.Timeout | undefined;

  constructor(db: Database, name: string, log: Pick<Log, "warn">) {
    this.#db = db;
    this.#name = name;
    this.#log = log;
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

  [Symbol.dispose](): void {
    if (this.#again !== undefined) this.#keep(this.#record);
    clearTimeout(this.#again);
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
      clearTimeout(this.#again);
      this.#again = undefined;
    } catch (thrown) {
      if (this.#again === undefined)
        this.#log.warn(
          { overlay: this.#name, err: toPodnetError(thrown) },
          "What is known of an overlay cannot be written down yet",
        );
      clearTimeout(this.#again);
      this.#again = setTimeout(
        guarded("overlay", () => this.#keep(this.#record)),
        againMs,
      ).unref();
    }
  }
}
