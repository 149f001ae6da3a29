import { isPodnetError } from "../core/errors.ts";
import { decodeUtf8 } from "../core/utf8.ts";
import type { Etcd, KeyValue, Operation, WatchEvent } from "../etcd/etcd.ts";
import { follow } from "../etcd/follow.ts";
import type {
  Committed,
  GrantId,
  LeaseStore,
  LeaseTransaction,
  StoredKey,
  StoreEvent,
  StoreUpdate,
  TimeLeft,
} from "./store.ts";

/** Leases as they are kept in an etcd. */
export class EtcdStore implements LeaseStore {
  readonly #etcd: Etcd;

  constructor(etcd: Etcd) {
    this.#etcd = etcd;
  }

  async read(key: string, signal: AbortSignal): ReturnType<LeaseStore["read"]> {
    const { revision, kvs } = await this.#etcd.range({ key }, { signal });
    return { revision, at: kvs[0] && storedKey(kvs[0]) };
  }

  async list(prefix: string, signal: AbortSignal): ReturnType<LeaseStore["list"]> {
    const { cluster, revision, kvs } = await this.#etcd.range({ prefix }, { signal });
    return { kind: "snapshot", cluster, revision, keys: kvs.map(storedKey) };
  }

  async grant(id: GrantId | undefined, seconds: number, signal: AbortSignal): Promise<GrantId> {
    const options = id === undefined ? { signal } : { signal, lease: id };
    const { lease } = await this.#etcd.grant(seconds, options);
    return lease;
  }

  async revoke(id: GrantId, signal: AbortSignal): Promise<void> {
    try {
      await this.#etcd.revoke(id, { signal });
    } catch (error) {
      if (!isPodnetError(error, "ETCD_LEASE_GONE")) throw error;
    }
  }

  async timeLeft(id: GrantId, signal: AbortSignal): Promise<TimeLeft | undefined> {
    const left = await this.#etcd.timeToLive(id, { signal });
    return left && { seconds: left.ttlSeconds, grantedSeconds: left.grantedSeconds };
  }

  async commit(transaction: LeaseTransaction, signal: AbortSignal): Promise<Committed> {
    const { compares, puts, deletes } = transaction;
    const answer = await this.#etcd.txn(
      {
        do: [
          ...deletes.map((key): Operation => ({ kind: "delete", where: { key } })),
          ...puts.map(({ write, grant }): Operation => ({ kind: "put", ...write, lease: grant })),
        ],
        when: compares.map(({ key, modRevision }) => ({
          key,
          target: "modRevision",
          is: "=",
          value: modRevision,
        })),
        otherwise: compares.map(({ key }): Operation => ({ kind: "range", where: { key } })),
      },
      { signal },
    );
    const { revision } = answer;
    if (answer.succeeded) return { kind: "done", revision };
    const found = answer.results.flatMap((result) => (result.kind === "range" ? result.kvs : []));
    return { kind: "refused", revision, found: found.map(storedKey) };
  }

  async *follow(prefix: string, signal: AbortSignal): AsyncGenerator<StoreUpdate, void> {
    for await (const followed of follow(this.#etcd, prefix, { signal })) {
      switch (followed.kind) {
        case "snapshot": {
          const { kind, cluster, revision, kvs } = followed;
          yield { kind, cluster, revision, keys: kvs.map(storedKey) };
          break;
        }
        case "changes": {
          const { kind, revision, events } = followed;
          yield { kind, revision, events: events.map(storeEvent) };
          break;
        }
        case "stale":
          yield { kind: "stale", error: followed.reason };
          break;
        case "current":
          yield { kind: "current" };
      }
    }
  }
}

function storedKey({ key, value, lease, createRevision, modRevision }: KeyValue): StoredKey {
  return { key, value: decodeUtf8(value), grant: lease, createRevision, modRevision };
}

const storeEvent = (event: WatchEvent): StoreEvent =>
  event.kind === "put" ? { kind: "put", at: storedKey(event.kv) } : event;
