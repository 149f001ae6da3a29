import { toPodnetError } from "../../../core/errors.ts";
import type { NetworkName } from "../../../core/names.ts";
import { guard, guarded } from "../../../core/guard.ts";
import type { Log } from "../../../linux/log.ts";
import type { Prefix } from "../../../overlay/flannel/prefix.ts";
import type { LeaseStore } from "../../../overlay/store.ts";
import { followOverlayNames } from "../discover.ts";
import type { OverlayHost } from "../overlay-host.ts";

/** The wait before a failed change is retried, in milliseconds. */
const usualAgainMs = 5000;

export interface MembershipParts {
  readonly hosts: ReadonlyMap<string, Pick<OverlayHost, "phase" | "resigned" | "join" | "end">>;
  /**
   * Adds an overlay, in which this host takes part from then on. Throws the reason if that fails.
   */
  readonly add: (name: NetworkName) => Promise<void>;
  /** Removes an overlay that was left and exists no longer. */
  readonly drop: (name: NetworkName) => Promise<void>;
  readonly log: Pick<Log, "error">;
  readonly againMs?: number;
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
  #wanted: ReadonlySet<NetworkName> = new Set();
  /** The overlays that are being left because they no longer exist. */
  readonly #ending = new Set<NetworkName>();
  /** The failed changes that will be retried. */
  readonly #failed = new Map<NetworkName, string>();
  #again: NodeJS.Timeout | undefined;
  #following: Promise<void> = Promise.resolve();
  /** Never rejected: each change sees to its own failures. */
  #changing: Promise<void> = Promise.resolve();

  constructor(parts: MembershipParts) {
    this.#parts = parts;
  }

  /** The reasons why this host is not in the overlays as planned, one line each. */
  get troubles(): readonly string[] {
    return [...this.#failed.values()];
  }

  /** Sets the overlays. Resolves when each has been tried once. */
  become(names: Iterable<NetworkName>): Promise<void> {
    const wanted = new Set(names);
    return this.#next(async () => {
      this.#wanted = wanted;
      const there = this.#parts.hosts.keys() as Iterable<NetworkName>;
      await this.#converge([...wanted, ...there, ...this.#failed.keys()]);
    });
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
    clearTimeout(this.#again);
    await this.#following;
    await this.#changing;
  }

  #next(change: () => Promise<void>): Promise<void> {
    this.#changing = this.#changing.then(() => guard("overlay", change));
    return this.#changing;
  }

  async #converge(names: readonly NetworkName[]): Promise<void> {
    for (const name of new Set(names)) {
      if (this.#over.signal.aborted) return;
      if (this.#wanted.has(name)) await this.#takePart(name);
      else this.#end(name);
    }
  }

  async #takePart(name: NetworkName): Promise<void> {
    const { hosts, add } = this.#parts;
    const host = hosts.get(name);
    this.#ending.delete(name);
    try {
      if (host === undefined) await add(name);
      else if (!host.resigned && (host.phase === "left" || host.phase === "draining"))
        host.join(false);
      this.#failed.delete(name);
    } catch (thrown) {
      this.#fail(name, "This host cannot take part in the overlay", thrown);
    }
  }

  /** Pods on it are not disturbed: it is left when the last of them has gone. */
  #end(name: NetworkName): void {
    const { hosts, drop } = this.#parts;
    const host = hosts.get(name);
    if (this.#ending.has(name)) return;
    this.#failed.delete(name);
    if (host === undefined) return;
    this.#ending.add(name);
    void host.end(this.#over.signal).then(
      () =>
        this.#next(async () => {
          // The overlay may exist again by now.
          if (!this.#ending.delete(name) || this.#over.signal.aborted) return;
          try {
            await drop(name);
          } catch (thrown) {
            this.#fail(name, "What is left of the overlay cannot be taken away", thrown);
          }
        }),
      (thrown: unknown) => {
        if (this.#ending.delete(name)) this.#fail(name, "The overlay cannot be left", thrown);
      },
    );
  }

  #fail(name: NetworkName, what: string, thrown: unknown): void {
    const { log, againMs = usualAgainMs } = this.#parts;
    if (this.#over.signal.aborted) return;
    const err = toPodnetError(thrown);
    const trouble = `overlay ${name}: ${what}: ${err.message}`;
    // Once, for as long as it is so.
    if (this.#failed.get(name) !== trouble) log.error({ overlay: name, err }, what);
    this.#failed.set(name, trouble);
    this.#again ??= setTimeout(
      guarded("overlay", () => {
        this.#again = undefined;
        return this.#next(() => this.#converge([...this.#failed.keys()]));
      }),
      againMs,
    ).unref();
  }
}
