import type { Clock } from "../../../core/clock.ts";
import { isPodnetError } from "../../../core/errors.ts";
import type { PodId } from "../../../core/names.ts";
import { decodeUtf8 } from "../../../core/utf8.ts";
import { guard } from "../../../core/guard.ts";
import type { Etcd } from "../../../etcd/etcd.ts";
import { follow, type Followed } from "../../../etcd/follow.ts";
import type { Log } from "../../../linux/log.ts";
import type { OwnPrefix } from "../../../overlay/flannel/prefix.ts";
import { type HostId, hostKey, parseRecordKey, podKey } from "../../../overlay/pods/keys.ts";
import {
  type HostRecord,
  hostRecordText,
  type PodRecord,
  podRecordText,
} from "../../../overlay/pods/record.ts";
import type { OwnerId } from "../../../overlay/owner.ts";
import { HostPresence } from "../../../overlay/pods/presence.ts";
import { RemotePods } from "../../../overlay/pods/remote-pods.ts";
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
  /** How long records outlast a silent host, in seconds. Default: 300. */
  readonly ttlSeconds?: number;
}

/** The time between two writes, in milliseconds: changes in between are written together. */
const pauseMs = 200;
/** Longest pause after a failure, milliseconds. */
const longestPauseMs = 5000;
/** How long one call may take, milliseconds. */
const callMs = 5000;

/**
 * Publishes this host and its pods to other hosts by records in etcd, and reads the records of the
 * other hosts. The records have an etcd lease of their own, so that they expire when a host dies. A
 * podnetd that ends leaves them, because its pods keep running.
 */
export class HostRecords implements AsyncDisposable {
  readonly remote: RemotePods;
  readonly #parts: HostRecordsParts;
  readonly #own: OwnRecords;
  readonly #presence: HostPresence;
  readonly #stop = new AbortController();
  readonly #ttlMs: number;
  #tasks: Promise<unknown> = Promise.resolve();
  /** Whether the records in etcd were listed. */
  #listed = false;
  /** Since when etcd has not been heard, wall time. */
  #staleSince: number | undefined;
  #lease: { readonly id: bigint; readonly renewAt: number } | undefined;
  /** Something is not as it should be, or may not. */
  #dirty = true;
  #wake: () => void = () => {};
  /** Ends the current pause, including the unlimited pause while there is nothing to do. */
  #release: () => void = () => {};
  #failing = false;
  /** Why records cannot be read, and why they cannot be written. */
  #unread: unknown;
  #unwritten: unknown;

  constructor(parts: HostRecordsParts) {
    const { prefix, host, ttlSeconds = 300 } = parts;
    this.#parts = parts;
    this.#ttlMs = ttlSeconds * 1000;
    this.remote = new RemotePods(prefix, host);
    this.#presence = new HostPresence(prefix);
    this.#own = new OwnRecords((key) => parseRecordKey(prefix, key)?.host === host);
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
    return unreadTexts([this.#unread, this.#unwritten].filter((each) => each !== undefined));
  }

  /** Starts following and publishing; `changes` reports local changes until its signal aborts. */
  start(changes: (ended: AbortSignal) => Promise<void> = async () => {}): void {
    this.hostChanged();
    const tasks = [() => this.#follow(), () => this.#publish(), () => changes(this.#stop.signal)];
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
    for (const key of this.#own.wanted)
      if (key !== hostKey(prefix, host) && !texts.has(key)) this.#own.want(key, undefined);
    for (const [key, text] of texts) this.#own.want(key, text);
    this.#touch();
  }

  podChanged(id: PodId): void {
    const { prefix, host, pod } = this.#parts;
    const record = pod(id);
    const text = record && podRecordText(record);
    if (this.#own.want(podKey(prefix, host, id), text)) this.#touch();
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
    this.#release();
    await this.#tasks;
  }

  #touch(): void {
    this.#dirty = true;
    this.#wake();
  }

  async #follow(): Promise<void> {
    const { etcd, prefix, clock, random } = this.#parts;
    const options = { signal: this.#stop.signal, clock, random };
    for await (const followed of follow(etcd, `${prefix}/`, options))
      guard("etcd", () => this.#take(followed));
  }

  #take(followed: Followed): void {
    this.#notePresence(followed);
    this.#staleSince = followed.kind === "stale" ? followed.since : undefined;
    this.#unread = followed.kind === "stale" ? followed.reason : undefined;
    if (followed.kind === "snapshot") {
      this.#own.listed(followed.kvs);
      this.remote.replace(followed.kvs.map(({ key, value }) => ({ key, text: decodeUtf8(value) })));
      this.#listed = true;
      this.#touch();
    } else if (followed.kind === "changes")
      for (const event of followed.events) {
        const { key, modRevision } = event.kind === "put" ? event.kv : event;
        const kv = event.kind === "put" ? event.kv : undefined;
        if (kv === undefined) this.remote.delete(key);
        else this.remote.put({ key, text: decodeUtf8(kv.value) });
        // Another program has changed one of this host's records.
        if (this.#own.changed({ key, modRevision, ...(kv === undefined ? {} : { kv }) }))
          this.#touch();
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

  async #publish(): Promise<void> {
    const { signal } = this.#stop;
    for (let failures = 0; !signal.aborted; ) {
      try {
        await this.#renewAndWrite();
        failures = 0;
        this.#report(undefined);
      } catch (thrown) {
        if (signal.aborted) return;
        if (isPodnetError(thrown, "ETCD_LEASE_GONE")) this.#lease = undefined;
        this.#dirty = true;
        this.#report(thrown);
        failures++;
      }
      const longest = Math.min(longestPauseMs, pauseMs * 2 ** failures);
      await this.#pause(failures === 0 ? pauseMs : longest * (0.5 + this.#parts.random() / 2));
      if (!this.#dirty) await this.#pause(this.#untilRenewal(), true);
    }
  }

  /** Keeps the lease, and writes the pending records with it. */
  async #renewAndWrite(): Promise<void> {
    if (!this.#listed) {
      this.#dirty = false;
      return;
    }
    const { etcd, clock } = this.#parts;
    const signal = AbortSignal.any([this.#stop.signal, AbortSignal.timeout(callMs)]);
    const renewAt = clock.monotonic() + this.#ttlMs / 3;
    if (this.#lease !== undefined && this.#untilRenewal() <= 0) {
      const { id } = this.#lease;
      const left = await etcd.keepAlive(id, { signal });
      this.#lease = left === undefined ? undefined : { id, renewAt };
    }
    if (this.#lease === undefined) {
      const { lease } = await etcd.grant(this.#ttlMs / 1000, { signal });
      this.#lease = { id: lease, renewAt };
    }
    // Reset before the writes, so that changes during the writes cause another one.
    this.#dirty = false;
    await this.#own.write(etcd, this.#lease.id, signal);
  }

  #untilRenewal(): number {
    return this.#lease === undefined
      ? this.#ttlMs
      : Math.max(0, this.#lease.renewAt - this.#parts.clock.monotonic());
  }

  /** Reports each reason once until it changes. */
  #report(thrown: unknown): void {
    const { log } = this.#parts;
    this.#unwritten = thrown;
    if (thrown !== undefined && !this.#failing)
      log.warn({ err: thrown }, "Failed to publish this host's pods to other hosts; retrying");
    if (thrown === undefined && this.#failing)
      log.info({}, "This host's pods are published to other hosts again");
    this.#failing = thrown !== undefined;
  }

  /** Waits until the time has passed, podnetd ends, or (`wakes`) there is something to do. */
  async #pause(ms: number, wakes = false): Promise<void> {
    if (this.#stop.signal.aborted) return;
    const { promise, resolve } = Promise.withResolvers<void>();
    const timer = setTimeout(resolve, ms);
    this.#release = resolve;
    if (wakes) this.#wake = resolve;
    await promise;
    clearTimeout(timer);
    this.#wake = () => {};
  }
}
