import type { Database } from "../store/database.ts";
import { type OverlayRecord, overlayRecord, writeOverlay } from "../store/overlays.ts";

/** What the next start is to know of one overlay, kept beside its row. */
export class OverlayMemory {
  readonly #db: Database;
  readonly #name: string;
  #record: OverlayRecord;

  constructor(db: Database, name: string) {
    this.#db = db;
    this.#name = name;
    this.#record = overlayRecord(db, name);
  }

  get record(): OverlayRecord {
    return this.#record;
  }

  remember(more: OverlayRecord): void {
    this.#write({ ...this.#record, ...more });
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

  #write(record: OverlayRecord): void {
    if (JSON.stringify(record) === JSON.stringify(this.#record)) return;
    writeOverlay(this.#db, this.#name, record);
    this.#record = record;
  }
}
