import type { BackendType } from "../../../overlay/flannel/backend.ts";
import { conflictsIn, type PeerChange, Peers } from "../../../overlay/peers.ts";
import type { EntryChange, Registry } from "../../../overlay/registry.ts";
import type { GrantId } from "../../../overlay/store.ts";
import type { Extension } from "../kernel/extension.ts";
import { conflictText } from "../trouble-text.ts";

/** The other hosts of an overlay, by the backend that it has now. */
export class OtherHosts implements AsyncDisposable {
  readonly #registry: Registry;
  readonly #over = new AbortController();
  #backend: BackendType = "vxlan";
  #peers = new Peers("vxlan");
  #own: string | undefined;
  /** Undefined when it has to be looked for again. */
  #conflicts: readonly string[] | undefined;
  #notifying: Promise<unknown> = Promise.resolve();
  #waits = false;

  constructor(registry: Registry) {
    this.#registry = registry;
  }

  get peers(): Peers {
    return this.#peers;
  }

  /**
   * The etcd leases of all other hosts. This host's own lease is not asked about, and a reservation
   * has none.
   */
  get grants(): ReadonlySet<GrantId> {
    const grants = new Set<GrantId>();
    for (const entry of this.#registry)
      if (entry.kind === "lease" && entry.grant !== 0n && entry.key !== this.#own)
        grants.add(entry.grant);
    return grants;
  }

  /** The conflicts between hosts, a line each. */
  get conflicts(): readonly string[] {
    this.#conflicts ??= conflictsIn(this.#registry).map(conflictText);
    return this.#conflicts;
  }

  /** From now on, only hosts of this backend are peers. */
  configure(backend: BackendType): void {
    if (this.#backend === backend) return;
    this.#backend = backend;
    this.#peers = new Peers(backend);
    this.#peers.own(this.#own, () => undefined);
    const entries = [...this.#registry];
    this.#peers.apply(entries.map((after) => ({ key: after.key, before: undefined, after })));
  }

  /** Sets the host's own key. Returns the resulting changes of peers. */
  own(key: string | undefined): readonly PeerChange[] {
    this.#own = key;
    return this.#peers.own(key, (each) => this.#registry.get(each));
  }

  /** Applies changes of the leases. Returns the resulting changes of peers. */
  apply(changes: readonly EntryChange[]): readonly PeerChange[] {
    this.#conflicts = undefined;
    return this.#peers.apply(changes);
  }

  /**
   * Makes an extension's commands follow the peers, one call after the other; failures are retried
   * with the next call.
   */
  notifyExtension(extension: Extension | undefined): void {
    if (extension === undefined || this.#waits) return;
    this.#waits = true;
    this.#notifying = this.#notifying.then(async () => {
      this.#waits = false;
      await extension.follow(this.#peers, this.#over.signal).catch(() => {});
    });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#over.abort();
    await this.#notifying;
  }
}
