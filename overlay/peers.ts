import { type Cidr, type Ip, type Ipv4, type Ipv6, rangeOf } from "../core/address.ts";
import type { BackendType } from "./flannel/backend.ts";
import { type Subnets, subnetsText } from "./flannel/key.ts";
import { attributesOf, type BackendAttributes } from "./flannel/value.ts";
import type { Entry, EntryChange, Lease } from "./registry.ts";

/** Another host of the overlay. */
export interface Peer {
  /** Its key: what it is known by. */
  readonly key: string;
  readonly subnets: Subnets;
  readonly publicIp: Ipv4 | undefined;
  readonly publicIp6: Ipv6 | undefined;
  readonly attributes: BackendAttributes;
  /** Its lease does not end. */
  readonly reserved: boolean;
}

/** The properties of a peer that may change. */
type PeerAttribute = "publicIp" | "publicIp6" | "backend" | "v4" | "v6" | "reserved";

export type PeerChange =
  | { readonly kind: "added"; readonly peer: Peer }
  | { readonly kind: "removed"; readonly peer: Peer }
  | {
      readonly kind: "changed";
      readonly before: Peer;
      readonly peer: Peer;
      readonly attributes: readonly PeerAttribute[];
    };

/** The reasons why a key is not a peer. */
export type NoPeer =
  /** The key is not a lease: its format is not flannel's, or a newer one. */
  | "unreadable"
  /** The backend is unknown here, or its data are not readable. */
  | "unknown-backend"
  /** The backend is not this host's. */
  | "other-backend"
  /** Without an address to send to: reserved for a host that has not come, or broken. */
  | "no-address";

/**
 * Backends of hosts that a host of this one sends to. Neither udp nor alloc says which of the two
 * it is.
 */
const together = (own: BackendType, other: BackendType): boolean =>
  own === other || (own === "alloc" && other === "udp");

/** The peer of a key, or the reason why it is none; undefined for this host's own key. */
function peerOf(
  entry: Entry,
  own: string | undefined,
  backend: BackendType,
): Peer | NoPeer | undefined {
  if (entry.key === own) return undefined;
  if (entry.kind === "skipped") return "unreadable";
  const { key, subnets, value, grant } = entry;
  const attributes = attributesOf(value);
  if (attributes === undefined) return "unknown-backend";
  // (udp does not ask what the other is.)
  if (backend !== "udp" && !together(backend, attributes.type)) return "other-backend";
  const { publicIp, publicIp6 } = value;
  const reachable = subnets.v4 === undefined ? publicIp6 !== undefined : publicIp !== undefined;
  if (!reachable) return "no-address";
  return { key, subnets, publicIp, publicIp6, attributes, reserved: grant === 0n };
}

/** The other hosts, kept in step with the leases by what changes of them. */
export class Peers {
  readonly #peers = new Map<string, Peer>();
  readonly #none = new Map<string, NoPeer>();
  readonly #backend: BackendType;
  #own: string | undefined;

  constructor(backend: BackendType) {
    this.#backend = backend;
  }

  [Symbol.iterator](): Iterator<Peer> {
    return this.#peers.values();
  }

  get size(): number {
    return this.#peers.size;
  }

  /** Keys that are no peers, counted by why. */
  get passedOver(): Readonly<Record<NoPeer, number>> {
    const counts = { unreadable: 0, "unknown-backend": 0, "other-backend": 0, "no-address": 0 };
    for (const why of this.#none.values()) counts[why]++;
    return counts;
  }

  /** Applies changes of the leases, and returns the resulting changes of peers. */
  apply(changes: readonly EntryChange[]): PeerChange[] {
    return changes.flatMap(({ key, after }) => this.#set(key, after));
  }

  /** This host's own key is another, or is one now. `entries`: what both keys say. */
  own(key: string | undefined, entryOf: (key: string) => Entry | undefined): PeerChange[] {
    const former = this.#own;
    if (former === key) return [];
    this.#own = key;
    return [former, key].flatMap((one) => (one === undefined ? [] : this.#set(one, entryOf(one))));
  }

  #set(key: string, entry: Entry | undefined): PeerChange[] {
    const before = this.#peers.get(key);
    const now = entry && peerOf(entry, this.#own, this.#backend);
    this.#none.delete(key);
    if (typeof now === "string") this.#none.set(key, now);
    if (now === undefined || typeof now === "string") {
      this.#peers.delete(key);
      return before === undefined ? [] : [{ kind: "removed", peer: before }];
    }
    this.#peers.set(key, now);
    if (before === undefined) return [{ kind: "added", peer: now }];
    const attributes = differences(before, now);
    return attributes.length === 0 ? [] : [{ kind: "changed", before, peer: now, attributes }];
  }
}

/** The properties of a peer that have changed. */
function differences(before: Peer, after: Peer): PeerAttribute[] {
  const was = attributeTexts(before);
  const is = attributeTexts(after);
  return (Object.keys(is) as PeerAttribute[]).filter((name) => was[name] !== is[name]);
}

function attributeTexts(peer: Peer): Readonly<Record<PeerAttribute, string>> {
  const { publicIp, publicIp6, attributes, reserved } = peer;
  const { v4, v6 } =
    attributes.type === "vxlan" || attributes.type === "wireguard"
      ? attributes
      : { v4: attributes.type === "extension" ? attributes.output : undefined, v6: undefined };
  return {
    publicIp: publicIp ?? "",
    publicIp6: publicIp6 ?? "",
    backend: attributes.type,
    v4: JSON.stringify(v4 ?? null),
    v6: JSON.stringify(v6 ?? null),
    reserved: String(reserved),
  };
}

/** Two hosts that cannot both be right. */
export type Conflict =
  | { readonly kind: "address"; readonly ip: Ip; readonly keys: readonly string[] }
  | {
      readonly kind: "subnet";
      readonly subnets: readonly string[];
      readonly keys: readonly string[];
    };

/** Public addresses and subnets that more than one lease has. As fast as sorting them. */
export function conflictsIn(leases: Iterable<Entry>): Conflict[] {
  const readable = [...leases].filter((entry): entry is Lease => entry.kind === "lease");
  const byIp = new Map<Ip, string[]>();
  for (const { key, value } of readable)
    for (const ip of [value.publicIp, value.publicIp6])
      if (ip !== undefined) byIp.set(ip, [...(byIp.get(ip) ?? []), key]);
  const addresses = [...byIp]
    .filter(([, keys]) => keys.length > 1)
    .map(([ip, keys]): Conflict => ({ kind: "address", ip, keys }));
  return [...addresses, ...overlapping(readable, "v4"), ...overlapping(readable, "v6")];
}

function overlapping(leases: readonly Lease[], family: "v4" | "v6"): Conflict[] {
  const spans = leases
    .flatMap(({ key, subnets }) => {
      const subnet: Cidr | undefined = subnets[family];
      return subnet === undefined ? [] : [{ key, name: subnetsText(subnets), ...rangeOf(subnet) }];
    })
    .toSorted((a, b) => (a.first < b.first ? -1 : a.first > b.first ? 1 : 0));
  const found: Conflict[] = [];
  let widest = spans[0];
  for (const span of spans.slice(1)) {
    if (widest !== undefined && span.first <= widest.last)
      found.push({
        kind: "subnet",
        subnets: [widest.name, span.name],
        keys: [widest.key, span.key],
      });
    if (widest === undefined || span.last > widest.last) widest = span;
  }
  return found;
}
