import type { NetworkName } from "../../core/names.ts";
import type { Log } from "../../linux/log.ts";
import type { Prefix } from "../../overlay/flannel/prefix.ts";
import type { LeaseStore } from "../../overlay/store.ts";
import { followOverlayNames } from "./discover.ts";
import type { OverlayHost } from "./overlay-host.ts";

export interface DiscoveredOverlaysParts {
  readonly store: Pick<LeaseStore, "follow">;
  /** Below which overlays are looked for. */
  readonly prefix: Prefix;
  /** Those that are there whether or not they are found. */
  readonly names: readonly NetworkName[];
  readonly hosts: ReadonlyMap<string, OverlayHost>;
  /** One more is to be among the hosts, unless it cannot be had. */
  readonly add: (name: NetworkName) => Promise<void>;
  /** This one has been left and is no more. */
  readonly drop: (name: NetworkName, host: OverlayHost) => Promise<void>;
  readonly log: Pick<Log, "error">;
  /** What keeps it from knowing which there are; nothing when it knows. */
  readonly onUnread: (reasons: readonly unknown[]) => void;
}

/** Takes part in the overlays there are: those that come are joined, those that are no more are left. One change at a time. */
export class DiscoveredOverlays implements AsyncDisposable {
  readonly #parts: DiscoveredOverlaysParts;
  readonly #over = new AbortController();
  /** Left because they are no more. */
  readonly #ending = new Set<NetworkName>();
  readonly #following: Promise<void>;
  #changing: Promise<void> = Promise.resolve();

  /** Begins to follow them. */
  constructor(parts: DiscoveredOverlaysParts) {
    this.#parts = parts;
    const { store, prefix, names, onUnread } = parts;
    this.#following = followOverlayNames(
      store,
      prefix,
      this.#over.signal,
      (found) => {
        this.#changing = this.#changing.then(() => this.#found(new Set([...names, ...found])));
      },
      onUnread,
    );
  }

  /** Ends every task; nothing is left by that. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.#over.abort();
    await this.#following;
    await this.#changing;
  }

  /** These are the overlays now. */
  async #found(names: ReadonlySet<NetworkName>): Promise<void> {
    const { hosts, add } = this.#parts;
    for (const name of names) {
      if (this.#over.signal.aborted) return;
      const host = hosts.get(name);
      this.#ending.delete(name);
      if (host === undefined) {
        await add(name);
        hosts.get(name)?.start();
      } else if (host.phase === "left" || host.phase === "draining") host.join();
    }
    for (const name of hosts.keys())
      if (!names.has(name as NetworkName)) this.#end(name as NetworkName);
  }

  /** Pods on it are not disturbed: it is left when the last of them has gone. */
  #end(name: NetworkName): void {
    const { hosts, drop, log } = this.#parts;
    const host = hosts.get(name);
    if (host === undefined || this.#ending.has(name)) return;
    this.#ending.add(name);
    void host
      .leave(this.#over.signal)
      .then(() => {
        this.#changing = this.#changing.then(async () => {
          // It may have come again meanwhile.
          if (this.#ending.delete(name) && !this.#over.signal.aborted) await drop(name, host);
        });
      })
      .catch((err: unknown) => {
        if (!this.#over.signal.aborted) log.error({ overlay: name, err }, "Not left");
      });
  }
}
