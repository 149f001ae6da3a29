import { HashIndex, hashOffset, hashText } from "./hash-index.ts";
import type { Offset } from "./occupancy.ts";
import { type Owner, ownerKinds } from "./owner.ts";

const none = -1;
/**
 * Value of the kind column for a quarantined address; a lease has its owner's kind, counted from 1.
 */
const quarantined = 0;

/**
 * The leases and the quarantined addresses of a pool, a numbered record each, kept as columns: an
 * object for each, with a Map by address and a Map by owner, took about twice the memory. Records
 * of one owner are a chain; the quarantine is another, oldest first.
 */
export class RecordTable {
  readonly #offsets: Offset[] = [];
  readonly #ids: string[] = [];
  #kinds = new Uint8Array(16);
  #previous = new Int32Array(16);
  #next = new Int32Array(16);
  /** When the address was released, for quarantined ones. */
  #since = new Float64Array(16);

  readonly #byOffset = new HashIndex();
  /** First record of each owner's chain. */
  readonly #byOwner = new HashIndex();
  #oldest = none;
  #newest = none;
  /** Chain of unused record numbers. */
  #unused = none;
  #leases = 0;
  #inQuarantine = 0;

  get leases(): number {
    return this.#leases;
  }

  get inQuarantine(): number {
    return this.#inQuarantine;
  }

  /** The record of an address, undefined when it is neither leased nor quarantined. */
  find(offset: Offset): number | undefined {
    const record = this.#byOffset.find(hashOffset(offset), (r) => this.#offsets[r] === offset);
    return record === none ? undefined : record;
  }

  offsetOf(record: number): Offset {
    return this.#offsets[record] as Offset;
  }

  isQuarantined(record: number): boolean {
    return this.#kinds[record] === quarantined;
  }

  ownerOf(record: number): Owner {
    const kind = ownerKinds[(this.#kinds[record] as number) - 1] as Owner["kind"];
    return { kind, id: this.#ids[record] as string };
  }

  sinceOf(record: number): number {
    return this.#since[record] as number;
  }

  /** Adds a lease of an address that has no record. */
  lease(offset: Offset, owner: Owner): void {
    this.#chainToOwner(this.#add(offset), owner);
  }

  /** Turns a quarantined record into a lease. */
  leaseAgain(record: number, owner: Owner): void {
    this.#unchainFromQuarantine(record);
    this.#chainToOwner(record, owner);
  }

  /** Turns a lease into a quarantined record. */
  retire(record: number, since: number): void {
    this.#unchainFromOwner(record);
    this.#chainToQuarantine(record, since);
  }

  /** Adds a quarantined address that has no record. */
  quarantine(offset: Offset, since: number): void {
    this.#chainToQuarantine(this.#add(offset), since);
  }

  /** Forgets a record of either kind. */
  remove(record: number): void {
    if (this.isQuarantined(record)) this.#unchainFromQuarantine(record);
    else this.#unchainFromOwner(record);
    this.#byOffset.remove(hashOffset(this.#offsets[record] as Offset), record);
    this.#next[record] = this.#unused;
    this.#unused = record;
    // So that `all` recognizes it, and so that nothing keeps a bigint alive.
    this.#offsets[record] = none;
  }

  /** The record longest in quarantine. */
  oldest(): number | undefined {
    return this.#oldest === none ? undefined : this.#oldest;
  }

  /** Records in quarantine, oldest first. */
  *quarantineChain(): Generator<number> {
    for (let r = this.#oldest; r !== none; r = this.#next[r] as number) yield r;
  }

  ofOwner(owner: Owner): number[] {
    const records: number[] = [];
    for (let r = this.#headOf(owner); r !== none; r = this.#next[r] as number) records.push(r);
    return records;
  }

  /** All records, leases and quarantined, in no useful order. */
  *all(): Generator<number> {
    for (let record = 0; record < this.#offsets.length; record++) {
      if (this.#offsets[record] !== none) yield record;
    }
  }

  #add(offset: Offset): number {
    let record = this.#unused;
    if (record === none) {
      record = this.#offsets.length;
      if (record === this.#kinds.length) this.#grow();
      this.#offsets.push(offset);
      this.#ids.push("");
    } else {
      this.#unused = this.#next[record] as number;
      this.#offsets[record] = offset;
    }
    this.#byOffset.add(hashOffset(offset), record);
    return record;
  }

  #grow(): void {
    const length = Math.ceil(this.#kinds.length * 1.5);
    const longer = <T extends { set(from: T): void }>(into: T, from: T): T => {
      into.set(from);
      return into;
    };
    this.#kinds = longer(new Uint8Array(length), this.#kinds);
    this.#previous = longer(new Int32Array(length), this.#previous);
    this.#next = longer(new Int32Array(length), this.#next);
    this.#since = longer(new Float64Array(length), this.#since);
  }

  #headOf({ kind, id }: Owner): number {
    const code = ownerKinds.indexOf(kind) + 1;
    return this.#byOwner.find(
      hashText(id, code),
      (r) => this.#ids[r] === id && this.#kinds[r] === code,
    );
  }

  #chainToOwner(record: number, owner: Owner): void {
    const code = ownerKinds.indexOf(owner.kind) + 1;
    const head = this.#headOf(owner);
    this.#kinds[record] = code;
    this.#ids[record] = owner.id;
    // Behind the head, so that the index need not change.
    const next = head === none ? none : (this.#next[head] as number);
    this.#previous[record] = head;
    this.#next[record] = next;
    if (next !== none) this.#previous[next] = record;
    if (head === none) this.#byOwner.add(hashText(owner.id, code), record);
    else this.#next[head] = record;
    this.#leases++;
  }

  #unchainFromOwner(record: number): void {
    const previous = this.#previous[record] as number;
    const next = this.#next[record] as number;
    if (next !== none) this.#previous[next] = previous;
    if (previous !== none) this.#next[previous] = next;
    else {
      const hash = hashText(this.#ids[record] as string, this.#kinds[record] as number);
      if (next === none) this.#byOwner.remove(hash, record);
      else this.#byOwner.replace(hash, record, next);
    }
    this.#ids[record] = "";
    this.#leases--;
  }

  #chainToQuarantine(record: number, since: number): void {
    this.#kinds[record] = quarantined;
    this.#since[record] = since;
    // Releases come in order of time; only addresses restored out of order are walked past.
    let previous = this.#newest;
    while (previous !== none && (this.#since[previous] as number) > since)
      previous = this.#previous[previous] as number;
    const next = previous === none ? this.#oldest : (this.#next[previous] as number);
    this.#previous[record] = previous;
    this.#next[record] = next;
    if (previous === none) this.#oldest = record;
    else this.#next[previous] = record;
    if (next === none) this.#newest = record;
    else this.#previous[next] = record;
    this.#inQuarantine++;
  }

  #unchainFromQuarantine(record: number): void {
    const previous = this.#previous[record] as number;
    const next = this.#next[record] as number;
    if (previous === none) this.#oldest = next;
    else this.#next[previous] = next;
    if (next === none) this.#newest = previous;
    else this.#previous[next] = previous;
    this.#inQuarantine--;
  }
}
