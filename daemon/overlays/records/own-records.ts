import type { KeyValue, Operation, Etcd } from "../../../etcd/etcd.ts";
import { decodeUtf8 } from "../../../core/utf8.ts";

/** The value at one of this host's keys in etcd. */
interface Published {
  readonly text: string;
  readonly lease: bigint;
  readonly modRevision: bigint;
}

/** Operations of one transaction; etcd takes 128. */
const together = 100;

/**
 * This host's own records: the desired and the stored ones, and the writes that bring the latter to
 * the former.
 */
export class OwnRecords {
  readonly #isOwn: (key: string) => boolean;
  readonly #wanted = new Map<string, string>();
  readonly #there = new Map<string, Published>();

  constructor(isOwn: (key: string) => boolean) {
    this.#isOwn = isOwn;
  }

  /** Sets the desired value of a key; undefined removes it. Returns whether it changed. */
  want(key: string, text: string | undefined): boolean {
    const changed = this.#wanted.get(key) !== text;
    if (text === undefined) this.#wanted.delete(key);
    else this.#wanted.set(key, text);
    return changed;
  }

  /** The keys that should exist. */
  get wanted(): readonly string[] {
    return [...this.#wanted.keys()];
  }

  /** Takes in all that etcd has, of whomever. */
  listed(kvs: readonly KeyValue[]): void {
    this.#there.clear();
    for (const kv of kvs) this.#put(kv);
  }

  /** Applies a change by any host; returns whether its key is one of this host's. */
  changed(event: {
    readonly key: string;
    readonly modRevision: bigint;
    readonly kv?: KeyValue;
  }): boolean {
    if (!this.#isOwn(event.key)) return false;
    const known = this.#there.get(event.key);
    // The event reports this host's own write, which is known already.
    if (known !== undefined && known.modRevision >= event.modRevision) return false;
    if (event.kv === undefined) this.#there.delete(event.key);
    else this.#put(event.kv);
    return true;
  }

  /** Writes all differences, with the given lease. */
  async write(etcd: Pick<Etcd, "txn">, lease: bigint, signal: AbortSignal): Promise<void> {
    const operations = this.#difference(lease);
    for (let from = 0; from < operations.length; from += together) {
      const part = operations.slice(from, from + together);
      const { revision } = await etcd.txn({ when: [], do: part }, { signal });
      for (const one of part)
        if (one.kind === "put")
          this.#there.set(one.key, { text: one.value, lease, modRevision: revision });
        else this.#there.delete(one.where.key);
    }
  }

  #difference(lease: bigint) {
    const puts = [...this.#wanted].flatMap(([key, value]) => {
      const there = this.#there.get(key);
      if (there?.text === value && there.lease === lease) return [];
      return [{ kind: "put", key, value, lease } as const satisfies Operation];
    });
    const deletes = [...this.#there.keys()]
      .filter((key) => !this.#wanted.has(key))
      .map((key) => ({ kind: "delete", where: { key } }) as const satisfies Operation);
    return [...puts, ...deletes];
  }

  #put({ key, value, lease, modRevision }: KeyValue): void {
    if (this.#isOwn(key)) this.#there.set(key, { text: decodeUtf8(value), lease, modRevision });
  }
}
