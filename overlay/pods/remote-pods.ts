import { type Ip, ipOf } from "../../core/address.ts";
import type { OwnPrefix } from "../flannel/prefix.ts";
import { type HostId, parseRecordKey } from "./keys.ts";
import { type HostRecord, parseHostRecord, parsePodRecord, type PodRecord } from "./record.ts";

/** A pod of another host. */
export interface RemotePod extends PodRecord {
  readonly host: HostId;
  /** The name of that host: from its own record, or its id until it has one. */
  readonly hostname: string;
}

/** The value at a key, as text. */
export interface RecordAt {
  readonly key: string;
  readonly text: string;
}

type Held =
  | { readonly kind: "host"; readonly host: HostId; readonly record: HostRecord }
  | { readonly kind: "pod"; readonly host: HostId; readonly record: PodRecord }
  /** The record is not readable, or a newer podnet wrote it. */
  | { readonly kind: "skipped" };

/**
 * The records that other hosts have published about themselves and their pods. If pods share a
 * name, the pod that was created first has it, then the pod on the host with the lowest id, so that
 * all hosts agree.
 */
export class RemotePods {
  readonly #prefix: OwnPrefix;
  readonly #self: HostId;
  readonly #held = new Map<string, Held>();
  readonly #hosts = new Map<HostId, HostRecord>();
  /** Hosts by the keys of their leases. */
  readonly #leases = new Map<string, HostId>();
  readonly #byName = new Index();
  readonly #byAddress = new Index();
  #skipped = 0;

  constructor(prefix: OwnPrefix, self: HostId) {
    this.#prefix = prefix;
    this.#self = self;
  }

  /** Records that cannot be read. */
  get skipped(): number {
    return this.#skipped;
  }

  /** Sorted by host, and then by age, the oldest first. */
  list(): RemotePod[] {
    return [...this.#held.values()]
      .flatMap((held) => (held.kind === "pod" ? [this.#podOf(held.host, held.record)] : []))
      .toSorted((a, b) => compare(a.host, b.host) || olderFirst(a, b));
  }

  /** The addresses on an overlay of the pod that has a name, if it runs. */
  addressesOf(overlay: string, name: string): readonly Ip[] | undefined {
    const [first] = this.#running(this.#byName.get(`${overlay} ${name}`));
    return first && addressesOn(first, overlay);
  }

  /** The pods that run on an overlay, with their addresses on it: paused ones do not. */
  runningOn(overlay: string): readonly { readonly pod: RemotePod; readonly ips: readonly Ip[] }[] {
    return this.list()
      .filter(({ state }) => state === "running")
      .map((pod) => ({ pod, ips: addressesOn(pod, overlay) }))
      .filter(({ ips }) => ips.length > 0);
  }

  /** The pod that runs on an overlay with an address. */
  nameAt(overlay: string, ip: Ip): RemotePod["name"] | undefined {
    return this.#running(this.#byAddress.get(`${overlay} ${ip}`))[0]?.name;
  }

  /** The name of the host that has a lease. */
  hostOf(leaseKey: string): string | undefined {
    const host = this.#leases.get(leaseKey);
    return host === undefined ? undefined : this.#hosts.get(host)?.name;
  }

  /** The keys of a host's leases, as it says. */
  leasesOf(host: HostId): readonly string[] {
    return this.#hosts.get(host)?.leases ?? [];
  }

  /** Sets all records: others are removed. */
  replace(records: readonly RecordAt[]): void {
    const there = new Set(records.map(({ key }) => key));
    for (const key of this.#held.keys()) if (!there.has(key)) this.delete(key);
    for (const record of records) this.put(record);
  }

  put({ key, text }: RecordAt): void {
    this.delete(key);
    const held = this.#read(key, text);
    if (held === undefined) return;
    this.#held.set(key, held);
    this.#count(key, held, 1);
  }

  delete(key: string): void {
    const held = this.#held.get(key);
    if (held === undefined) return;
    this.#held.delete(key);
    this.#count(key, held, -1);
  }

  /** Undefined: of this host. */
  #read(key: string, text: string): Held | undefined {
    const at = parseRecordKey(this.#prefix, key);
    if (at === undefined) return { kind: "skipped" };
    // (`SharedServices` reads the others.)
    if (at.kind !== "host" && at.kind !== "pod") return undefined;
    if (at.host === this.#self) return undefined;
    const { host } = at;
    if (at.kind === "host") {
      const record = parseHostRecord(text);
      return record === undefined ? { kind: "skipped" } : { kind: "host", host, record };
    }
    const record = parsePodRecord(text);
    // A record at another pod's key is invalid.
    return record?.id !== at.pod ? { kind: "skipped" } : { kind: "pod", host, record };
  }

  #count(key: string, held: Held, by: 1 | -1): void {
    switch (held.kind) {
      case "skipped":
        this.#skipped += by;
        break;
      case "host": {
        const { host, record } = held;
        if (by === 1) this.#hosts.set(host, record);
        else this.#hosts.delete(host);
        for (const lease of record.leases)
          if (by === 1) this.#leases.set(lease, host);
          else if (this.#leases.get(lease) === host) this.#leases.delete(lease);
        break;
      }
      case "pod":
        for (const overlay of overlaysOf(held.record)) {
          this.#byName.count(`${overlay} ${held.record.name}`, key, by);
          for (const ip of addressesOn(held.record, overlay))
            this.#byAddress.count(`${overlay} ${ip}`, key, by);
        }
    }
  }

  #running(keys: ReadonlySet<string>): RemotePod[] {
    return [...keys]
      .flatMap((key) => {
        const held = this.#held.get(key);
        return held?.kind === "pod" && runs(held.record)
          ? [this.#podOf(held.host, held.record)]
          : [];
      })
      .toSorted((a, b) => olderFirst(a, b) || compare(a.host, b.host));
  }

  #podOf(host: HostId, record: PodRecord): RemotePod {
    return { ...record, host, hostname: this.#hosts.get(host)?.name ?? host.slice(9) };
  }
}

/** Paused ones are there too. */
const runs = ({ state }: PodRecord): boolean => state === "running" || state === "paused";

const overlaysOf = ({ interfaces }: PodRecord): Set<string> =>
  new Set(interfaces.flatMap(({ overlay }) => overlay ?? []));

const addressesOn = ({ interfaces }: PodRecord, overlay: string): Ip[] => [
  ...new Set(
    interfaces
      .filter((each) => each.overlay === overlay)
      .flatMap(({ addresses }) => addresses.map(ipOf)),
  ),
];

const compare = (a: string, b: string): number => (a < b ? -1 : a > b ? 1 : 0);

const olderFirst = (a: PodRecord, b: PodRecord): number =>
  a.createdMs - b.createdMs || compare(a.id, b.id);

const nothing: ReadonlySet<string> = new Set();

/** Keys by something they have. */
class Index {
  readonly #keys = new Map<string, Set<string>>();

  get(by: string): ReadonlySet<string> {
    return this.#keys.get(by) ?? nothing;
  }

  count(by: string, key: string, change: 1 | -1): void {
    const keys = this.#keys.get(by) ?? new Set();
    if (change === 1) this.#keys.set(by, keys.add(key));
    else if (keys.delete(key) && keys.size === 0) this.#keys.delete(by);
  }
}
