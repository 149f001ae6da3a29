import type { OwnerId } from "../owner.ts";
import type { OwnPrefix } from "../flannel/prefix.ts";
import { type HostId, parseRecordKey } from "./keys.ts";

/**
 * Which hosts have a record in etcd, readable or not: a record ends a few minutes after its host
 * was last heard.
 */
export class HostPresence {
  readonly #prefix: OwnPrefix;
  readonly #hosts = new Set<HostId>();

  constructor(prefix: OwnPrefix) {
    this.#prefix = prefix;
  }

  /** The ids of these hosts. */
  get owners(): ReadonlySet<OwnerId> {
    return new Set([...this.#hosts].map(ownerOfHost));
  }

  /** All keys there are. */
  replace(keys: readonly string[]): void {
    this.#hosts.clear();
    for (const key of keys) this.put(key);
  }

  /** Answers whether a host came by this key. */
  put(key: string): boolean {
    const host = this.#hostAt(key);
    if (host === undefined || this.#hosts.has(host)) return false;
    this.#hosts.add(host);
    return true;
  }

  /** Answers whether a host went with this key. */
  delete(key: string): boolean {
    const host = this.#hostAt(key);
    return host !== undefined && this.#hosts.delete(host);
  }

  #hostAt(key: string): HostId | undefined {
    const at = parseRecordKey(this.#prefix, key);
    return at?.kind === "host" ? at.host : undefined;
  }
}

/** A host's id begins with its owner's, 8 hexadecimal digits. */
const ownerOfHost = (host: HostId): OwnerId => Number.parseInt(host.slice(0, 8), 16) as OwnerId;
