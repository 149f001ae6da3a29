import { PodnetError, toPodnetError } from "../../core/errors.ts";
import { guard, guarded, type Place } from "../../core/guard.ts";
import { type Backoff, backoffMs } from "./backoff.ts";
import { type Condition, Conditions, type Degraded } from "./conditions.ts";
import { countDegraded, type QueueName, queuePlaces } from "./queues.ts";

/**
 * The work for a key. Rejects when it has to be retried; unwanted work resolves. Safe to repeat.
 */
export type Work = () => Promise<void>;

/** The time a queue goes by. */
export interface WorkTime {
  /** Milliseconds that never go backwards. */
  monotonic(): number;
  /** Calls `body` after a time, in milliseconds, unless the answer is called before. */
  after(ms: number, body: () => void): () => void;
}

export interface WorkQueueOptions<Key extends string> {
  /** By which metrics count its degraded keys. */
  readonly name: QueueName;
  readonly backoff: Backoff;
  /** Keys worked on at a time; 32 unless given. */
  readonly atOnce?: number;
  /** Called once for as long as the error of a key is alike. */
  readonly onDegraded?: (key: Key, condition: Degraded) => void;
  /** Called when the work of a key succeeds after it failed. */
  readonly onRecovered?: (key: Key) => void;
  /** The system's unless given. */
  readonly time?: WorkTime;
}

interface Item<Key> {
  readonly key: Key;
  work: Work;
  /** When its turn is; undefined while nothing more is asked for. */
  dueMs: number | undefined;
  cancel: (() => void) | undefined;
  running: boolean;
  /** It is not wanted any more: a run that is under way is its last. */
  forgotten: boolean;
  /** Who waits for the next run. */
  callers: PromiseWithResolvers<void>[];
}

/**
 * Runs work by keys, which may have to be repeated. One worker a key at a time: requests for a key
 * that waits are one run, and requests while it runs are one more run. Failures are retried after a
 * backoff of the key's own, and its condition says so until it works.
 *
 * The queue is memory: work that must survive a restart is in a row before it is added here, and
 * the start adds it again. Timers keep no process alive.
 */
export class WorkQueue<Key extends string = string> implements AsyncDisposable {
  readonly #options: WorkQueueOptions<Key>;
  readonly #time: WorkTime;
  readonly #conditions = new Conditions<Key>();
  readonly #items = new Map<Key, Item<Key>>();
  /** Items whose turn it is. */
  readonly #ready = new Set<Item<Key>>();
  readonly #running = new Set<Promise<void>>();
  #paused = 0;
  #closed = false;

  constructor(options: WorkQueueOptions<Key>) {
    this.#options = options;
    this.#time = options.time ?? systemTime(queuePlaces[options.name]);
  }

  /** How a key is: degraded from its first failure until its work succeeds or it is forgotten. */
  condition(key: Key): Condition {
    return this.#conditions.get(key);
  }

  /** Why the work of a key failed last; undefined if it did not. */
  error(key: Key): PodnetError | undefined {
    const condition = this.#conditions.get(key);
    return condition.status === "degraded" ? condition.error : undefined;
  }

  /** The keys whose work failed last. */
  degraded(): IterableIterator<readonly [Key, Degraded]> {
    return this.#conditions.degraded();
  }

  /** Keys that wait or run. */
  get size(): number {
    return this.#items.size;
  }

  /**
   * Requests a run in `afterMs` milliseconds, or sooner where one was requested already. The latest
   * work replaces earlier work.
   */
  add(key: Key, work: Work, afterMs = 0): void {
    if (!this.#closed) this.#due(this.#item(key, work), afterMs);
  }

  /** The work of a key failed outside of the queue: it is tried again after its backoff. */
  failed(key: Key, work: Work, thrown: unknown): void {
    if (!this.#closed) this.#fail(this.#item(key, work), thrown);
  }

  /**
   * Runs a key now, or once more where it runs already; resolves or rejects as that run does. A
   * failed run is retried.
   */
  run(key: Key, work: Work): Promise<void> {
    if (this.#closed) return Promise.reject(closed());
    const caller = Promise.withResolvers<void>();
    const item = this.#item(key, work);
    item.callers.push(caller);
    this.#due(item, 0);
    return caller.promise;
  }

  /** A key is not wanted any more: it is not run again, and has no condition. */
  forget(key: Key): void {
    this.#recover(key);
    const item = this.#items.get(key);
    if (item === undefined) return;
    this.#drop(item);
    item.forgotten = true;
    if (!item.running) this.#items.delete(key);
  }

  /**
   * Starts no run from now on; resolves when none is under way. Continues once the returned
   * function is called.
   */
  async pause(): Promise<() => void> {
    this.#paused++;
    await this.#idle();
    let paused = true;
    return () => {
      if (!paused) return;
      paused = false;
      this.#paused--;
      this.#pump();
    };
  }

  /**
   * Drops what waits for its time, and does what is due, unless paused; resolves when that is done.
   */
  async close(): Promise<void> {
    this.#closed = true;
    for (const item of this.#items.values()) if (!this.#ready.has(item)) this.#drop(item);
    await this.#idle();
    for (const item of this.#items.values()) this.#drop(item);
    this.#items.clear();
    for (const [key] of this.#conditions.degraded()) this.#recover(key);
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  async #idle(): Promise<void> {
    while (this.#running.size > 0) await Promise.all(this.#running);
  }

  #item(key: Key, work: Work): Item<Key> {
    const item = this.#items.get(key) ?? {
      key,
      work,
      dueMs: undefined,
      cancel: undefined,
      running: false,
      forgotten: false,
      callers: [],
    };
    this.#items.set(key, item);
    item.work = work;
    item.forgotten = false;
    return item;
  }

  #due(item: Item<Key>, afterMs: number): void {
    const dueMs = this.#time.monotonic() + afterMs;
    if (item.dueMs !== undefined && item.dueMs <= dueMs) return;
    item.dueMs = dueMs;
    item.cancel?.();
    item.cancel = undefined;
    const turn = (): void => {
      item.cancel = undefined;
      this.#ready.add(item);
      this.#pump();
    };
    if (afterMs > 0) item.cancel = this.#time.after(afterMs, turn);
    else turn();
  }

  /** Cancels the pending runs of an item. */
  #drop(item: Item<Key>): void {
    item.cancel?.();
    item.cancel = undefined;
    item.dueMs = undefined;
    this.#ready.delete(item);
    for (const { reject } of item.callers.splice(0)) reject(closed());
  }

  #pump(): void {
    const { atOnce = 32 } = this.#options;
    for (const item of this.#ready) {
      if (this.#paused > 0 || this.#running.size >= atOnce) return;
      if (item.running) continue;
      this.#ready.delete(item);
      const run = this.#run(item).finally(() => {
        this.#running.delete(run);
        this.#pump();
      });
      this.#running.add(run);
    }
  }

  async #run(item: Item<Key>): Promise<void> {
    item.running = true;
    // Requests in the same turn of the loop are one run.
    await Promise.resolve();
    item.dueMs = undefined;
    const callers = item.callers.splice(0);
    let failure: { readonly thrown: unknown } | undefined;
    try {
      if (!item.forgotten) await item.work();
    } catch (thrown) {
      failure = { thrown };
    }
    item.running = false;
    if (failure !== undefined) this.#fail(item, failure.thrown);
    else this.#succeed(item);
    if (item.dueMs === undefined) this.#items.delete(item.key);
    for (const { resolve, reject } of callers)
      if (failure === undefined) resolve();
      else reject(failure.thrown);
  }

  #succeed({ key }: Item<Key>): void {
    const { name, onRecovered } = this.#options;
    if (this.#recover(key)) guard(queuePlaces[name], () => onRecovered?.(key));
  }

  #recover(key: Key): boolean {
    const was = this.#conditions.recover(key);
    if (was) countDegraded(this.#options.name, -1);
    return was;
  }

  #fail(item: Item<Key>, thrown: unknown): void {
    // (Work that a close interrupts has not failed.)
    if (this.#closed || item.forgotten) return;
    const { name, backoff, onDegraded } = this.#options;
    const { key } = item;
    const now = this.#time.monotonic();
    const condition = this.#conditions.get(key);
    const failures = condition.status === "ok" ? 1 : condition.attempts + 1;
    if (condition.status === "ok") countDegraded(name, 1);
    const afterMs = backoffMs(backoff, failures, key);
    this.#due(item, afterMs);
    const degraded = this.#conditions.fail(key, toPodnetError(thrown), now, now + afterMs);
    if (this.#conditions.report(key)) guard(queuePlaces[name], () => onDegraded?.(key, degraded));
  }
}

const systemTime = (place: Place): WorkTime => ({
  monotonic: () => performance.now(),
  after: (ms, body) => {
    const timer = setTimeout(guarded(place, body), ms).unref();
    return () => clearTimeout(timer);
  },
});

const closed = (): PodnetError =>
  new PodnetError("CANCELLED", "The work was cancelled", { hint: "Try again" });
