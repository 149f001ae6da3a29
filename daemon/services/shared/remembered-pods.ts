import { isIp } from "../../../core/address.ts";
import type { NetworkName } from "../../../core/names.ts";
import { guarded } from "../../../core/guard.ts";
import { toPodnetError } from "../../../core/errors.ts";
import type { Log } from "../../../linux/log.ts";
import type { Candidate } from "../endpoints.ts";
import type { Database } from "../../store/database.ts";
import { getMeta, setMeta } from "../../store/meta.ts";
import { parseJson } from "../../store/rows.ts";

/** Pods of other hosts, by the network of this host that is part of their overlay. */
export type RemotePodsByNetwork = Readonly<Record<string, readonly Candidate[]>>;

/** Milliseconds from a change until it is written. */
const laterMs = 5000;
/** Pods that are written, at most: more would write megabytes at each change. */
const most = 8192;

/**
 * The pods of other hosts as they were last heard of, for a start without etcd: services go on
 * leading to them.
 */
export class RememberedPods implements Disposable {
  readonly #db: Database;
  readonly #log: Pick<Log, "warn">;
  readonly #former: RemotePodsByNetwork;
  #written: string;
  #now: (() => RemotePodsByNetwork) | undefined;
  #timer: NodeJS.Timeout | undefined;

  constructor(db: Database, log: Pick<Log, "warn">) {
    this.#db = db;
    this.#log = log;
    this.#written = getMeta(db, "remote_backends") ?? "{}";
    this.#former = readable(parseJson(this.#written, "remote pods"));
  }

  /** As an earlier podnetd wrote them. */
  on(network: NetworkName): readonly Candidate[] {
    return Object.hasOwn(this.#former, network) ? (this.#former[network] ?? []) : [];
  }

  /** They have changed: `now` has them when they are written. */
  note(now: () => RemotePodsByNetwork): void {
    this.#now = now;
    this.#timer ??= setTimeout(
      guarded("overlay", () => this.#write()),
      laterMs,
    ).unref();
  }

  [Symbol.dispose](): void {
    this.#write();
  }

  #write(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    const now = this.#now?.();
    this.#now = undefined;
    if (now === undefined) return;
    const few = Object.fromEntries(
      Object.entries(now).map(([network, pods]) => [network, pods.slice(0, most)]),
    );
    const text = JSON.stringify(few);
    if (text === this.#written) return;
    try {
      setMeta(this.#db, "remote_backends", text);
      this.#written = text;
    } catch (thrown) {
      // They are only used at a start without etcd.
      this.#log.warn({ err: toPodnetError(thrown) }, "Failed to record pods of other hosts");
    }
  }
}

/** What is not as it was written is left out. */
function readable(value: unknown): RemotePodsByNetwork {
  if (typeof value !== "object" || value === null) return {};
  return Object.fromEntries(
    Object.entries(value).map(([network, pods]) => [
      network,
      (Array.isArray(pods) ? (pods as Candidate[]) : []).filter(
        ({ addresses }) => Array.isArray(addresses) && addresses.every(({ ip }) => isIp(ip)),
      ),
    ]),
  );
}
