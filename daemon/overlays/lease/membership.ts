import { PodnetError, toPodnetError } from "../../../core/errors.ts";
import type { NetworkName } from "../../../core/names.ts";
import { guard } from "../../../core/guard.ts";
import type { Log } from "../../../linux/log.ts";
import type { Prefix } from "../../../overlay/flannel/prefix.ts";
import type { LeaseStore } from "../../../overlay/store.ts";
import type { Backoff } from "../../reconcile/backoff.ts";
import type { Degraded } from "../../reconcile/conditions.ts";
import { WorkQueue } from "../../reconcile/work-queue.ts";
import { followOverlayNames } from "../discover.ts";
import type { OverlayHost } from "../overlay-host.ts";

/** The wait before a failed change is retried. */
const usualBackoff = { firstMs: 500, longestMs: 5000 } as const;

export interface MembershipParts {
  readonly hosts: ReadonlyMap<string, Pick<OverlayHost, "phase" | "resigned" | "join" | "end">>;
  /**
   * Adds an overlay, in which this host takes part from then on. Throws the reason if that fails.
   */
  readonly add: (name: NetworkName) => Promise<void>;
  /** Removes an overlay that was left and exists no longer. */
  readonly drop: (name: NetworkName) => Promise<void>;
  readonly log: Pick<Log, "error">;
  readonly backoff?: Backoff;
}

/** The source of the set of overlays. */
export interface Discovery {
  readonly store: Pick<LeaseStore, "follow">;
  readonly prefix: Prefix;
  /** Overlays that exist whether or not they are found. */
  readonly always: readonly NetworkName[];
  /**
   * Called with the reasons why the set of overlays cannot be read; with an empty list when it can.
   */
  readonly onUnread: (reasons: readonly unknown[]) => void;
}

/**
 * Makes this host take part in the configured overlays, except those that an administrator made it
 * leave, and leave overlays that no longer exist. One change at a time. A failure holds up nothing
 * else; it is reported, and retried until it succeeds or is no longer wanted.
 */
export class Membership implements AsyncDisposable {
  readonly #parts: MembershipParts;
  readonly #over = new AbortController();
  readonly #queue: WorkQueue<NetworkName>;
  readonly #leaves: WorkQueue<NetworkName>;
  #wanted: ReadonlySet<NetworkName> = new Set();
  /** What ends the wait for an overlay that is being left because it no longer exists. */
  readonly #leaving = new Map<NetworkName, AbortController>();
  /** The overlays that were left, of which something remains. */
  readonly #left = new Set<NetworkName>();
  #following: Promise<void> = Promise.resolve();

  constructor(parts: MembershipParts) {
    this.#parts = parts;
    const { log, backoff = usualBackoff } = parts;
    const onDegraded = (overlay: NetworkName, { error: err }: Degraded): void =>
      log.error({ overlay, err }, "Failed to change this host's part in an overlay; retrying");
    this.#queue = new WorkQueue({ name: "overlay-memberships", backoff, atOnce: 1, onDegraded });
    // Pods may keep an overlay from being left for days.
    const atOnce = Number.POSITIVE_INFINITY;
    this.#leaves = new WorkQueue({ name: "overlay-leaves", backoff, atOnce, onDegraded });
  }

  /** The reasons why this host is not in the overlays as planned, one line each. */
  get troubles(): readonly string[] {
    return [...this.#queue.degraded(), ...this.#leaves.degraded()].map(
      ([name, { error }]) => `overlay ${name}: ${error?.message}`,
    );
  }

  /** Sets the overlays. Resolves when each has been tried once. */
  async become(names: Iterable<NetworkName>): Promise<void> {
    this.#wanted = new Set(names);
    const there = this.#parts.hosts.keys() as Iterable<NetworkName>;
    const degraded = Array.from(this.#queue.degraded(), ([name]) => name);
    await Promise.allSettled(
      Array.from(new Set([...this.#wanted, ...there, ...degraded]), (name) =>
        this.#queue.run(name, () => this.#converge(name)),
      ),
    );
  }

  /** Begins to follow which overlays there are. */
  follow({ store, prefix, always, onUnread }: Discovery): void {
    this.#following = guard("etcd", () =>
      followOverlayNames(
        store,
        prefix,
        this.#over.signal,
        (found) => void this.become([...always, ...found]),
        onUnread,
      ),
    );
  }

  /** Ends every task. The host leaves no overlay. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.#over.abort();
    await this.#following;
    await this.#queue.close();
    await this.#leaves.close();
  }

  async #converge(name: NetworkName): Promise<void> {
    if (this.#over.signal.aborted) return;
    if (this.#wanted.has(name))
      await this.#takePart(name).catch((thrown: unknown) => {
        throw failed("This host cannot take part in the overlay", thrown);
      });
    else if (this.#left.has(name))
      await this.#drop(name).catch((thrown: unknown) => {
        throw failed("What is left of the overlay cannot be removed", thrown);
      });
    else this.#leaves.add(name, () => this.#leave(name));
  }

  async #takePart(name: NetworkName): Promise<void> {
    const { hosts, add } = this.#parts;
    const host = hosts.get(name);
    this.#leaves.forget(name);
    this.#leaving.get(name)?.abort();
    this.#left.delete(name);
    if (host === undefined) await add(name);
    else if (!host.resigned && (host.phase === "left" || host.phase === "draining"))
      host.join(false);
  }

  /** Pods on it are not disturbed: it is left when the last of them has gone. */
  async #leave(name: NetworkName): Promise<void> {
    const host = this.#parts.hosts.get(name);
    if (host === undefined || this.#left.has(name)) return;
    const joined = new AbortController();
    this.#leaving.set(name, joined);
    const stop = AbortSignal.any([joined.signal, this.#over.signal]);
    try {
      await host.end(stop);
    } catch (thrown) {
      if (!stop.aborted) throw failed("The overlay cannot be left", thrown);
    } finally {
      this.#leaving.delete(name);
    }
    // The overlay exists again by now, or podnetd ends.
    if (stop.aborted) return;
    this.#left.add(name);
    this.#queue.add(name, () => this.#converge(name));
  }

  async #drop(name: NetworkName): Promise<void> {
    await this.#parts.drop(name);
    this.#left.delete(name);
  }
}

function failed(what: string, thrown: unknown): PodnetError {
  const { code, message, hint, details } = toPodnetError(thrown);
  return new PodnetError(code, `${what}: ${message}`, {
    ...(hint === undefined ? {} : { hint }),
    details,
    cause: thrown,
  });
}
