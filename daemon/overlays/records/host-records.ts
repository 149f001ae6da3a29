import type { Clock } from "../../../core/clock.ts";
import { isPodnetError } from "../../../core/errors.ts";
import type { PodId } from "../../../core/names.ts";
import { decodeUtf8 } from "../../../core/utf8.ts";
import { guard } from "../../../core/guard.ts";
import type { Etcd } from "../../../etcd/etcd.ts";
import { follow, type Followed } from "../../../etcd/follow.ts";
import type { Log } from "../../../linux/log.ts";
import type { OwnPrefix } from "../../../overlay/flannel/prefix.ts";
import {
  healthKey,
  type HostId,
  hostKey,
  parseRecordKey,
  podKey,
} from "../../../overlay/pods/keys.ts";
import {
  type HostRecord,
  hostRecordText,
  type PodRecord,
  podRecordText,
} from "../../../overlay/pods/record.ts";
import type { OwnerId } from "../../../overlay/owner.ts";
import { HostPresence } from "../../../overlay/pods/presence.ts";
import { RemotePods } from "../../../overlay/pods/remote-pods.ts";
import { SharedServices } from "../../../overlay/pods/shared-services.ts";
import { WorkQueue } from "../../reconcile/work-queue.ts";
import { OwnRecords } from "./own-records.ts";
import { unreadTexts } from "../trouble-text.ts";

/** The functions of the etcd client that publishing uses. */
export type RecordsEtcd = Pick<Etcd, "range" | "watch" | "txn" | "grant" | "keepAlive" | "revoke">;

export interface HostRecordsParts {
  readonly etcd: RecordsEtcd;
  readonly prefix: OwnPrefix;
  readonly host: HostId;
  readonly clock: Clock;
  readonly random: () => number;
  readonly log: Log;
  /** This host's record of itself, as of now. */
  readonly self: () => HostRecord;
  /** All its pods. */
  readonly pods: () => readonly PodRecord[];
  /** One of them; undefined when it is gone. */
  readonly pod: (id: PodId) => PodRecord | undefined;
  /**
   * Called with the hosts that have a record when this set changes; undefined if it is not known.
   */
  readonly onPresent?: (owners: ReadonlySet<OwnerId> | undefined) => void;
  /** Called after other hosts' records have changed. */
  readonly onOthers?: (change: OthersChange) => void;
  /** How long records outlast a silent host, in seconds. Default: 300. */
  readonly ttlSeconds?: number;
}

/** What has changed of other hosts' records. */
interface OthersChange {
  /** Some of them are about services. */
  readonly services: boolean;
  /** etcd has lost its data, or is as it was before: what it lacks may have been lost. */
  readonly lost: boolean;
}

/** The time between two writes, in milliseconds: changes in between are written together. */
const pauseMs = 200;
const backoff = { firstMs: 2 * pauseMs, longestMs: 5000 } as const;
/** How long one call may take, milliseconds. */
const callMs = 5000;

/**
 * Publishes this host and its pods to other hosts by records in etcd, and reads the records of the
 * other hosts. The records have an etcd lease of their own, so that they expire when a host dies. A
 * podnetd that ends leaves them, because its pods keep running.
 */
export class HostRecords implements AsyncDisposable {
  readonly remote: RemotePods;
  readonly services: SharedServices;
  readonly #parts: HostRecordsParts;
  readonly #own: OwnRecords;
  readonly #presence: HostPresence;
  readonly #stop = new AbortController();
  readonly #ttlMs: number;
  #tasks: Promise<unknown> = Promise.resolve();
  /** Which etcd has listed its records, and up to which revision; undefined before that. */
  #listed: { readonly cluster: bigint; readonly revision: bigint } | undefined;
  /** Since when etcd has not been heard, wall time. */
  #staleSince: number | undefined;
  #lease: { readonly id: bigint; readonly renewAt: number } | undefined;
  /** When the last write began, by the monotonic clock. */
  #wroteMs = -Infinity;
  /** Why records cannot be read. */
  #unread: unknown;
  /** One key, this host: hosts that etcd failed together do not try again together. */
  readonly #queue: WorkQueue<HostId>;

  constructor(parts: HostRecordsParts) {
    const { prefix, host, ttlSeconds = 300 } = parts;
    this.#parts = parts;
    this.#ttlMs = ttlSeconds * 1000;
    this.#queue = new WorkQueue({
      name: "overlay-records",
      backoff,
      onDegraded: (_, { error: err }) =>
        parts.log.warn({ err }, "Failed to publish this host's pods to other hosts; retrying"),
      onRecovered: () => parts.log.info({}, "This host's pods are published to other hosts again"),
    });
    this.remote = new RemotePods(prefix, host);
    this.#presence = new HostPresence(prefix);
    this.#own = new OwnRecords((key) => {
      const at = parseRecordKey(prefix, key);
      return at !== undefined && "host" in at && at.host === host;
    });
    this.services = new SharedServices(prefix, host);
  }

  /** Which etcd has listed its records, and up to which revision; undefined before that. */
  get listed(): { readonly cluster: bigint; readonly revision: bigint } | undefined {
    return this.#listed;
  }

  /** For how long etcd has not been heard, milliseconds; undefined while it is. */
  get staleMs(): number | undefined {
    const since = this.#staleSince;
    return since === undefined ? undefined : Math.max(0, this.#parts.clock.now() - since);
  }

  /**
   * The reasons why hosts do not know each other's pods, one line each. That etcd is unreachable is
   * not listed.
   */
  get troubles(): readonly string[] {
    const unwritten = this.#queue.error(this.#parts.host);
    return unreadTexts([this.#unread, unwritten].filter((each) => each !== undefined));
  }

  /** Starts following and publishing; `changes` reports local changes until its signal aborts. */
  start(changes: (ended: AbortSignal) => Promise<void> = async () => {}): void {
    this.hostChanged();
    const tasks = [() => this.#follow(), () => changes(this.#stop.signal)];
    this.#tasks = Promise.all(tasks.map((task) => guard("etcd", task)));
  }

  /** The host's own record, or the assignment of networks to overlays, may have changed. */
  hostChanged(): void {
    const { prefix, host, self } = this.#parts;
    if (this.#own.want(hostKey(prefix, host), hostRecordText(self()))) this.podsChanged();
  }

  /** Any of the pods may be another now. */
  podsChanged(): void {
    const { prefix, host, pods } = this.#parts;
    const texts = new Map(
      pods().map((pod) => [podKey(prefix, host, pod.id), podRecordText(pod)] as const),
    );
    const others: readonly string[] = [hostKey(prefix, host), healthKey(prefix, host)];
    for (const key of this.#own.wanted)
      if (!others.includes(key) && !texts.has(key)) this.#own.want(key, undefined);
    for (const [key, text] of texts) this.#own.want(key, text);
    this.#touch();
  }

  podChanged(id: PodId): void {
    const { prefix, host, pod } = this.#parts;
    const record = pod(id);
    const text = record && podRecordText(record);
    if (this.#own.want(podKey(prefix, host, id), text)) this.#touch();
  }

  /** Publishes what this host knows of the health of its backends; undefined: nothing. */
  healthChanged(text: string | undefined): void {
    const { prefix, host } = this.#parts;
    if (this.#own.want(healthKey(prefix, host), text)) this.#touch();
  }

  /** Takes this host's records away at once: it is not to be here any more. */
  async withdraw(signal: AbortSignal): Promise<void> {
    await this[Symbol.asyncDispose]();
    if (this.#lease === undefined) return;
    try {
      await this.#parts.etcd.revoke(this.#lease.id, { signal });
    } catch (err) {
      // They end by themselves.
      this.#parts.log.warn({ err }, "Other hosts see this host's pods until its records expire");
    }
  }

  /** Ends following and publishing; the records stay until their lease ends. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort();
    await this.#queue.close();
    await this.#tasks;
  }

  /** Something is not as it should be, or may not: it is written soon, or after the backoff. */
  #touch(): void {
    const { host, clock } = this.#parts;
    if (this.#listed === undefined || this.#queue.condition(host).status === "degraded") return;
    this.#writeIn(Math.max(0, this.#wroteMs + pauseMs - clock.monotonic()));
  }

  #writeIn(ms: number): void {
    this.#queue.add(this.#parts.host, () => this.#renewAndWrite(), ms);
  }

  async #follow(): Promise<void> {
    const { etcd, prefix, clock, random } = this.#parts;
    const options = { signal: this.#stop.signal, clock, random };
    for await (const followed of follow(etcd, `${prefix}/`, options))
      guard("etcd", () => this.#take(followed));
  }

  #take(followed: Followed): void {
    const { onOthers = () => {} } = this.#parts;
    this.#notePresence(followed);
    this.#staleSince = followed.kind === "stale" ? followed.since : undefined;
    this.#unread = followed.kind === "stale" ? followed.reason : undefined;
    if (followed.kind === "snapshot") {
      const { cluster, revision, kvs } = followed;
      const texts = kvs.map((kv) => ({ ...kv, text: decodeUtf8(kv.value) }));
      this.#own.listed(kvs);
      this.remote.replace(texts);
      this.services.clear();
      for (const { key, text, modRevision } of texts) this.services.put(key, text, modRevision);
      const before = this.#listed;
      this.#listed = { cluster, revision };
      this.#touch();
      const isOlder = before !== undefined && revision < before.revision;
      onOthers({ services: true, lost: isOlder || (before?.cluster ?? cluster) !== cluster });
    } else if (followed.kind === "changes") {
      let services = false;
      for (const event of followed.events) {
        const { key, modRevision } = event.kind === "put" ? event.kv : event;
        const kv = event.kind === "put" ? event.kv : undefined;
        const text = kv && decodeUtf8(kv.value);
        if (text === undefined) this.remote.delete(key);
        else this.remote.put({ key, text });
        const shared =
          text === undefined
            ? this.services.delete(key)
            : this.services.put(key, text, modRevision);
        services ||= shared;
        // Another program has changed one of this host's records.
        if (this.#own.changed({ key, modRevision, ...(kv === undefined ? {} : { kv }) }))
          this.#touch();
      }
      if (this.#listed !== undefined)
        this.#listed = { ...this.#listed, revision: followed.revision };
      onOthers({ services, lost: false });
    }
  }

  #notePresence(followed: Followed): void {
    const { onPresent = () => {} } = this.#parts;
    if (followed.kind === "stale") {
      onPresent(undefined);
      return;
    }
    let changed = followed.kind !== "changes";
    if (followed.kind === "snapshot") this.#presence.replace(followed.kvs.map(({ key }) => key));
    if (followed.kind === "changes")
      for (const event of followed.events)
        if (
          event.kind === "put" ? this.#presence.put(event.kv.key) : this.#presence.delete(event.key)
        )
          changed = true;
    if (changed) onPresent(this.#presence.owners);
  }

  /** Keeps the lease, and writes the pending records with it; comes again when it is to renew. */
  async #renewAndWrite(): Promise<void> {
    const { etcd, clock } = this.#parts;
    const signal = AbortSignal.any([this.#stop.signal, AbortSignal.timeout(callMs)]);
    this.#wroteMs = clock.monotonic();
    const renewAt = this.#wroteMs + this.#ttlMs / 3;
    try {
      if (this.#lease !== undefined && this.#untilRenewal() <= 0) {
        const { id } = this.#lease;
        const left = await etcd.keepAlive(id, { signal });
        this.#lease = left === undefined ? undefined : { id, renewAt };
      }
      if (this.#lease === undefined) {
        const { lease } = await etcd.grant(this.#ttlMs / 1000, { signal });
        this.#lease = { id: lease, renewAt };
      }
      await this.#own.write(etcd, this.#lease.id, signal);
    } catch (thrown) {
      if (isPodnetError(thrown, "ETCD_LEASE_GONE")) this.#lease = undefined;
      throw thrown;
    }
    this.#writeIn(this.#untilRenewal());
  }

  #untilRenewal(): number {
    return this.#lease === undefined
      ? this.#ttlMs
      : Math.max(0, this.#lease.renewAt - this.#parts.clock.monotonic());
  }
}
