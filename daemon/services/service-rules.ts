import { setTimeout as delay } from "node:timers/promises";
import { isDeepStrictEqual } from "node:util";
import { isPodnetError } from "../../core/errors.ts";
import { guard } from "../../core/guard.ts";
import type { Log } from "../../linux/log.ts";
import type { HostNetwork } from "../../network/bridge/host-network.ts";
import type { PluggedFragment } from "../../network/model/desired.ts";
import type { ServiceDesired } from "../../network/model/service.ts";
import type { Journal } from "../events/journal.ts";
import { WorkQueue } from "../reconcile/work-queue.ts";

/** Milliseconds in which changes of several pods are one change of the rules. */
const gatherMs = 20;
const changeMs = 60_000;
/** Milliseconds until pods are followed again after a failure. */
const followAgainMs = 1000;

export interface ServiceRulesParts {
  readonly network: Pick<HostNetwork, "apply">;
  readonly journal: Pick<Journal, "watch" | "newest">;
  readonly log: Log;
  /** The services as the host is to have them now. */
  readonly desired: () => readonly ServiceDesired[];
  /** Pods and containers of the host. */
  readonly pods: () => readonly PluggedFragment[];
  readonly hasAny: () => boolean;
  /** Called when what services lead to may have changed, after each write. */
  readonly written: () => void;
}

/**
 * Keeps the rules of all services as they are to be: after a change, and after events of pods. What
 * the host refuses is tried again.
 */
export class ServiceRules implements AsyncDisposable {
  readonly #parts: ServiceRulesParts;
  readonly #queue: WorkQueue<"rules">;
  readonly #ended = new AbortController();
  /** The services whose rules were last written. */
  #written: readonly ServiceDesired[] | undefined;

  constructor(parts: ServiceRulesParts) {
    this.#parts = parts;
    const { log } = parts;
    this.#queue = new WorkQueue({
      name: "services",
      backoff: { firstMs: 1000, longestMs: 30_000 },
      onDegraded: (_, { error }) =>
        log.warn({ err: error }, "Failed to write the rules of services; retrying"),
      onRecovered: () => log.info({}, "The rules of services are in force again"),
    });
  }

  /** Whether the last write failed. */
  get failed(): boolean {
    return this.#queue.condition("rules").status === "degraded";
  }

  /** Writes them now. Throws what the host refuses; that is tried again. */
  write(): Promise<void> {
    return this.#queue.run("rules", () => this.#write());
  }

  /** Writes them soon. */
  request(): void {
    this.#queue.add("rules", () => this.#write());
  }

  /** Writes them soon if they are to be others than they were. */
  look(): void {
    this.#queue.add("rules", () => this.#writeChanged(), gatherMs);
  }

  /** Follows the pods there are, from now on. */
  start(): void {
    this.request();
    void guard("services", () => this.#follow());
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#ended.abort();
    await this.#queue[Symbol.asyncDispose]();
  }

  async #write(): Promise<void> {
    const { network, pods } = this.#parts;
    const signal = AbortSignal.any([this.#ended.signal, AbortSignal.timeout(changeMs)]);
    let desired: readonly ServiceDesired[] = [];
    this.#written = undefined;
    try {
      const now = () => (desired = this.#parts.desired());
      await network.apply({ kind: "services", now, pods }, signal);
    } finally {
      this.#parts.written();
    }
    this.#written = desired;
  }

  async #writeChanged(): Promise<void> {
    if (isDeepStrictEqual(this.#parts.desired(), this.#written)) return;
    await this.#write();
  }

  /** An event of any pod may have changed an address, a label or whether it runs. */
  async #follow(): Promise<void> {
    const { journal, log, hasAny } = this.#parts;
    const { signal } = this.#ended;
    while (!signal.aborted) {
      try {
        for await (const _event of journal.watch(journal.newest, signal)) if (hasAny()) this.look();
      } catch (thrown) {
        // One that fell too far behind finds in the rows what it has missed.
        if (!isPodnetError(thrown, "EVENTS_LOST")) {
          log.warn({ err: thrown }, "Failed to follow pods for services; retrying");
          await delay(followAgainMs, undefined, { signal }).catch(() => {});
        }
        this.request();
      }
    }
  }
}
