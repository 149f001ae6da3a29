import { assertNever } from "../core/brand.ts";
import { PodnetError, toPodnetError } from "../core/errors.ts";
import { Queue } from "../core/queue.ts";
import { guard, guarded } from "../core/guard.ts";
import type { Host } from "./claim.ts";
import { configOrTrouble } from "./flannel/config.ts";
import type { Subnets } from "./flannel/key.ts";
import { configKey, leasesPrefix } from "./flannel/prefix.ts";
import type { HostLease, HostLeaseParts, HostLeaseState } from "./host-lease.ts";
import {
  beginning,
  type LeaseCommand,
  type LeaseEvent,
  type LeaseSettings,
  type LeaseState,
  type Request,
} from "./lease-state.ts";
import { step } from "./lease.ts";
import { hostLeaseState } from "./lease-view.ts";
import type { OwnerId } from "./owner.ts";
import { type EntryChange, Registry } from "./registry.ts";
import type { LeaseStore, LeaseTransaction, StoreUpdate } from "./store.ts";

export interface LeaseDriverParts extends HostLeaseParts {
  readonly store: LeaseStore;
  readonly settings: LeaseSettings;
}

type ConfigEvent = LeaseEvent & { readonly kind: "config" };

/** How long one call of the store may take, milliseconds. */
const callMs = 5000;
/**
 * The wait before a refused configuration is checked again, in milliseconds: the host may have
 * changed by then.
 */
const judgeAgainMs = 10_000;
/** Longest time of one timer (2^31 ms are too long). */
const longestWaitMs = 3_600_000;

/**
 * Carries out the decisions of `step` about one host's lease on a store, until it is stopped. The
 * lease itself stays.
 */
export class LeaseDriver implements HostLease {
  readonly registry = new Registry();
  readonly #parts: LeaseDriverParts;
  readonly #events = new Queue<LeaseEvent>();
  readonly #stop = new AbortController();
  readonly #tasks = new Set<Promise<void>>();
  /** The reasons why keys below a prefix are not followed now. */
  readonly #unread = new Map<string, unknown>();
  #state: LeaseState;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #draining: AbortController | undefined;
  #judgeAgain: ReturnType<typeof setTimeout> | undefined;

  constructor(parts: LeaseDriverParts) {
    this.#parts = parts;
    this.#state = beginning(parts.settings, parts.host, parts.previous);
  }

  get state(): LeaseState {
    return this.#state;
  }

  get view(): HostLeaseState {
    return hostLeaseState(this.#state);
  }

  /** The reasons why configuration and leases are not followed; empty while they are. */
  get unread(): readonly unknown[] {
    return [...this.#unread.values()];
  }

  /** Begins: follows the store and acquires. */
  start(): void {
    const { prefix } = this.#parts.settings;
    this.#task(this.#followLeases(leasesPrefix(prefix)));
    this.#task(this.#followConfig(configKey(prefix)));
    this.#task(this.#run());
    this.#events.push({ kind: "tick" });
  }

  /** Sets the host's address and backend data, which have changed. */
  become(host: Host): void {
    this.#events.push({ kind: "host", host });
  }

  /** In etcd a lease says nothing of it. */
  ready(): void {}

  /** Gives the subnets up, once they are empty. */
  leave(): void {
    this.#events.push({ kind: "leave" });
  }

  /**
   * Takes part again. `takeOver`: leases of other hosts that name this host's address are taken
   * over.
   */
  join(takeOver = false): void {
    this.#events.push({ kind: "join", takeOver });
  }

  /** Sets the hosts that are gone: this host takes over their leases that name its address. */
  departed(owners: ReadonlySet<OwnerId>): void {
    this.#events.push({ kind: "departed", owners });
  }

  /** Ends every task. The lease lasts on. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort();
    this.#draining?.abort();
    clearTimeout(this.#timer);
    clearTimeout(this.#judgeAgain);
    this.#events.end();
    await Promise.all(this.#tasks);
  }

  #task(task: Promise<void>): void {
    const finished = guard("etcd", () => task).finally(() => this.#tasks.delete(finished));
    this.#tasks.add(finished);
  }

  async #run(): Promise<void> {
    for await (const event of this.#events) {
      if (this.#stop.signal.aborted) return;
      guard("etcd", () => this.#take(event));
    }
  }

  #take(event: LeaseEvent): void {
    const { clock, random, onState } = this.#parts;
    const moment = { at: clock.monotonic(), draw: random() };
    const next = step(this.#state, event, this.registry, moment);
    this.#state = next.state;
    for (const command of next.commands) this.#do(command);
    this.#wakeAt(next.state.wakeAt);
    onState(this.view);
  }

  #wakeAt(at: number | undefined): void {
    clearTimeout(this.#timer);
    if (at === undefined) return;
    const ms = Math.min(longestWaitMs, Math.max(0, at - this.#parts.clock.monotonic()));
    this.#timer = setTimeout(
      guarded("etcd", () => this.#events.push({ kind: "tick" })),
      ms,
    );
  }

  async #followLeases(prefix: string): Promise<void> {
    for await (const update of this.#parts.store.follow(prefix, this.#stop.signal)) {
      guard("etcd", () => this.#takeLeases(prefix, update));
    }
  }

  #takeLeases(prefix: string, update: StoreUpdate): void {
    this.#note(prefix, update);
    if (update.kind === "snapshot" || update.kind === "changes") {
      this.#report(this.registry.apply(update));
      this.#events.push({ kind: "leases" });
    } else this.#events.push({ kind: update.kind });
  }

  async #followConfig(key: string): Promise<void> {
    for await (const update of this.#parts.store.follow(key, this.#stop.signal)) {
      let event: ConfigEvent | undefined;
      guard("etcd", () => {
        this.#note(key, update);
        event = configEvent(update, key);
      });
      if (event !== undefined) this.#events.push(await this.#judged(event));
    }
  }

  /** The configuration, with the reason against it on this host. */
  async #judged(event: ConfigEvent): Promise<ConfigEvent> {
    const { refuse } = this.#parts;
    if (refuse === undefined) return event;
    clearTimeout(this.#judgeAgain);
    const config = event.text === undefined ? undefined : configOrTrouble(event.text);
    if (config === undefined || config instanceof PodnetError) return event;
    const refusal = await refuse(config).catch(toPodnetError);
    if (refusal === undefined || this.#stop.signal.aborted) return event;
    clearTimeout(this.#judgeAgain);
    this.#judgeAgain = setTimeout(
      guarded("etcd", () => this.#task(this.#judge(event))),
      judgeAgainMs,
    );
    return { ...event, refusal };
  }

  async #judge({ text, revision }: ConfigEvent): Promise<void> {
    this.#events.push(await this.#judged({ kind: "config", text, revision }));
  }

  #note(prefix: string, update: StoreUpdate): void {
    if (update.kind === "stale") this.#unread.set(prefix, update.error);
    else this.#unread.delete(prefix);
    this.#parts.onUnread(this.unread);
  }

  #report(changes: readonly EntryChange[]): void {
    if (changes.length > 0) this.#parts.onLeases(changes, this.registry);
  }

  #do(command: LeaseCommand): void {
    switch (command.kind) {
      case "drain":
        this.#task(this.#drain(command.subnets));
        break;
      case "undrain":
        this.#draining?.abort();
        break;
      case "revoke":
        // No caller waits for the revocation; if it fails, the etcd lease expires.
        this.#task(this.#parts.store.revoke(command.grant, this.#limit()).catch(() => {}));
        break;
      default:
        this.#task(this.#request(command));
    }
  }

  async #drain(subnets: Subnets): Promise<void> {
    const draining = new AbortController();
    this.#draining = draining;
    await this.#parts.drain(subnets, draining.signal).catch(() => draining.abort());
    if (!draining.signal.aborted) this.#events.push({ kind: "drained" });
  }

  async #request(request: Request): Promise<void> {
    try {
      this.#events.push(await this.#call(request));
    } catch (error) {
      this.#events.push({ kind: "failed", request: request.id, error });
    }
  }

  async #call(request: Request): Promise<LeaseEvent> {
    const { store, settings } = this.#parts;
    const signal = this.#limit();
    switch (request.kind) {
      case "config": {
        const { revision, at } = await store.read(configKey(settings.prefix), signal);
        return this.#judged({ kind: "config", text: at?.value, revision, request: request.id });
      }
      case "grant":
        await store.grant(request.grant, settings.ttlSeconds, signal);
        return { kind: "answered", request: request.id };
      case "cancel":
        await store.revoke(request.grant, signal);
        return { kind: "answered", request: request.id };
      case "commit":
        return this.#commit(request.id, request.transaction, signal);
      default:
        return assertNever(request);
    }
  }

  async #commit(
    request: number,
    transaction: LeaseTransaction,
    signal: AbortSignal,
  ): Promise<LeaseEvent> {
    const committed = await this.#parts.store.commit(transaction, signal);
    this.#report(this.registry.learn(transaction, committed));
    return { kind: "committed", request, committed };
  }

  #limit(): AbortSignal {
    return AbortSignal.any([this.#stop.signal, AbortSignal.timeout(callMs)]);
  }
}

/**
 * The event for an update of the configuration's key; undefined for other keys below that prefix.
 */
function configEvent(update: StoreUpdate, key: string): ConfigEvent | undefined {
  switch (update.kind) {
    case "snapshot": {
      const text = update.keys.find((at) => at.key === key)?.value;
      return { kind: "config", text, revision: update.revision };
    }
    case "changes": {
      const last = update.events.findLast(
        (event) => (event.kind === "put" ? event.at.key : event.key) === key,
      );
      if (last === undefined) return undefined;
      const text = last.kind === "put" ? last.at.value : undefined;
      return { kind: "config", text, revision: update.revision };
    }
    case "stale":
    case "current":
      return undefined;
    default:
      return assertNever(update);
  }
}
