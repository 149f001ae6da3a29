import type { Ip } from "../../core/address.ts";
import type { ServiceName } from "../../core/names.ts";
import type { OwnPrefix } from "../flannel/prefix.ts";
import { parseHealthRecord, type UnhealthyBackend } from "./health-record.ts";
import { type HostId, parseRecordKey } from "./keys.ts";

/** A definition of a service as etcd has it: the text is not read yet. */
export interface SharedText {
  readonly text: string;
  /** Of its last change. */
  readonly revision: bigint;
}

/** How a backend is, as the host where it runs says. */
export type RemoteHealth =
  | { readonly healthy: true }
  | { readonly healthy: false; readonly why: string };

/** The services of all hosts, and what other hosts say of the health of their backends. */
export class SharedServices {
  readonly #prefix: OwnPrefix;
  readonly #self: HostId;
  readonly #services = new Map<ServiceName, SharedText>();
  /** By host: backends that do not serve. Undefined of a record that cannot be read. */
  readonly #unhealthy = new Map<HostId, ReadonlyMap<string, string> | undefined>();

  constructor(prefix: OwnPrefix, self: HostId) {
    this.#prefix = prefix;
    this.#self = self;
  }

  get services(): ReadonlyMap<ServiceName, SharedText> {
    return this.#services;
  }

  /** Records of health that cannot be read. */
  get unread(): number {
    return [...this.#unhealthy.values()].filter((each) => each === undefined).length;
  }

  /** What a host says of one of its backends; undefined when it says nothing. */
  healthOf(
    host: HostId,
    backend: Omit<UnhealthyBackend, "why" | "address"> & { readonly address: Ip },
  ): RemoteHealth | undefined {
    const known = this.#unhealthy.get(host);
    if (known === undefined) return undefined;
    const why = known.get(textOf(backend));
    return why === undefined ? { healthy: true } : { healthy: false, why };
  }

  /** Forgets all; `put` adds what there is. */
  clear(): void {
    this.#services.clear();
    this.#unhealthy.clear();
  }

  /** Answers whether it was about a service or its backends. */
  put(key: string, text: string, revision: bigint): boolean {
    const at = parseRecordKey(this.#prefix, key);
    if (at?.kind === "service") this.#services.set(at.service, { text, revision });
    else if (at?.kind === "health" && at.host !== this.#self) {
      const read = parseHealthRecord(text);
      const known = read && new Map(read.map((each) => [textOf(each), each.why] as const));
      this.#unhealthy.set(at.host, known);
    } else return false;
    return true;
  }

  /** Likewise. */
  delete(key: string): boolean {
    const at = parseRecordKey(this.#prefix, key);
    if (at?.kind === "service") return this.#services.delete(at.service);
    return at?.kind === "health" && this.#unhealthy.delete(at.host);
  }
}

const textOf = ({ service, address, port }: Omit<UnhealthyBackend, "why">): string =>
  `${service} ${address} ${port}`;
