import { type Cidr, contains, type Ip, ipOf, type IpPrefix } from "../../core/address.ts";
import type { Clock } from "../../core/clock.ts";
import { PodnetError } from "../../core/errors.ts";
import type { NetworkName, PodId } from "../../core/names.ts";
import type { Owner } from "../../ipallocator/owner.ts";
import { AddressPool, type PoolStats } from "../../ipallocator/pool.ts";
import type { NetworkDefinition, SubnetDefinition } from "../config/network-definition.ts";
import type { AttachmentId } from "../store/holder.ts";
import type { Database } from "../store/database.ts";
import type { HolderId } from "../store/holder.ts";
import {
  freeLease,
  insertLease,
  type LeaseOwner,
  type LeaseRow,
  leavingLeases,
  listLeases,
  pruneLeases,
} from "./store.ts";

/** The holder of the addresses of a pod's interface or of a container. */
type Holder = Owner & LeaseOwner;

const ownerOf = (podId: PodId, position: number): Holder => ({
  kind: "pod",
  id: `${podId}/${position}`,
});

/** One address of a plan, with its interface. */
interface Claim {
  readonly network: NetworkName;
  readonly ip: Ip;
  readonly owner: Holder;
}

/** The parts of a pod's plan that claim addresses. */
export interface PodClaimant {
  readonly podId: PodId;
  readonly interfaces: readonly {
    /** Undefined where its addresses are of no network of podnet's. */
    readonly network?: NetworkName | undefined;
    readonly addresses: readonly IpPrefix[];
    readonly position: number;
  }[];
}

/** The parts of a container's plan that claim addresses. */
interface ContainerClaimant {
  readonly id: AttachmentId;
  readonly network: NetworkName;
  readonly addresses: readonly IpPrefix[];
}

/** The owner of a plan that claims addresses: a pod or a container. */
type Claimant = PodClaimant | ContainerClaimant;

/** Why a requested address cannot be had, if so. */
export type AddressStatus =
  | { readonly kind: "free" }
  | { readonly kind: "held"; readonly by: string }
  | { readonly kind: "reserved"; readonly why: string };

function claimsOf(plan: Claimant): Claim[] {
  if (!("podId" in plan)) {
    const owner = { kind: "attachment", id: plan.id } as const;
    return plan.addresses.map((address) => ({ network: plan.network, ip: ipOf(address), owner }));
  }
  return plan.interfaces.flatMap(({ network, addresses, position }) =>
    network === undefined
      ? []
      : addresses.map((address) => ({
          network,
          ip: ipOf(address),
          owner: ownerOf(plan.podId, position),
        })),
  );
}

/** The claims that one set of a pod's plans has and the other has not. */
function difference(
  before: readonly PodClaimant[],
  after: readonly PodClaimant[],
): { readonly lost: readonly Claim[]; readonly won: readonly Claim[] } {
  const keyed = (plans: readonly PodClaimant[]): Map<string, Claim> =>
    new Map(
      plans
        .flatMap(claimsOf)
        .map((claim) => [`${claim.network} ${claim.ip} ${claim.owner.id}`, claim]),
    );
  const [had, has] = [keyed(before), keyed(after)];
  const without = (all: Map<string, Claim>, others: Map<string, Claim>): Claim[] =>
    [...all].filter(([key]) => !others.has(key)).map(([, claim]) => claim);
  return { lost: without(had, has), won: without(has, had) };
}

/** A network's pools, one for each subnet. */
type Pools = ReadonlyMap<Cidr, AddressPool>;

/** The usage of a subnet's pool. */
export interface SubnetStats extends PoolStats {
  readonly cidr: Cidr;
}

/**
 * The pools of all networks, alongside their rows. The rows are the truth: they are written first,
 * and the pools, which only make finding fast, follow a commit that has succeeded.
 */
export class Addresses {
  readonly #db: Database;
  readonly #clock: Clock;
  readonly #quarantineMs: number;
  readonly #networks = new Map<NetworkName, Pools>();
  /**
   * The addresses that have had a holder, of networks that were empty when podnetd came to know
   * them. No neighbor can remember an earlier holder.
   */
  readonly #held = new Map<NetworkName, Set<Ip>>();

  /** Builds the pools from the networks' definitions and from rows. */
  constructor(
    db: Database,
    networks: readonly NetworkDefinition[],
    quarantineMs: number,
    clock: Clock,
  ) {
    this.#db = db;
    this.#clock = clock;
    this.#quarantineMs = quarantineMs;
    const pruneBefore = clock.now() - quarantineMs;
    db.whenRoom(() => pruneLeases(db, pruneBefore));
    for (const network of networks) this.#buildConfigured(network);
  }

  #buildConfigured(network: NetworkDefinition): void {
    try {
      this.prepare(network)();
    } catch (cause) {
      throw new PodnetError(
        "CONFIG_INVALID",
        `Setting "network.reserved" covers an address in use`,
        {
          field: "network.reserved",
          hint: "Delete the pod that holds it first, or leave the address out of the range",
          cause,
        },
      );
    }
  }

  /**
   * Builds the pools for a network's new definition; the returned function replaces the current
   * pools by them. Throws `ADDRESS_IN_USE` when an address to be reserved is held.
   */
  prepare(network: NetworkDefinition): () => void {
    const rows = listLeases(this.#db, network.name);
    const leaving = leavingLeases(this.#db, network.name);
    const pools = new Map(
      network.subnets.map((subnet) => [subnet.cidr, this.#build(subnet, rows, leaving)] as const),
    );
    const isEmpty = rows.every(({ owner }) => owner.kind === "gateway");
    return () => {
      if (isEmpty && !this.#networks.has(network.name)) this.#held.set(network.name, new Set());
      this.#networks.set(network.name, pools);
    };
  }

  /** Forgets the pools of a network that has gone. */
  drop(network: NetworkName): void {
    this.#networks.delete(network);
    this.#held.delete(network);
  }

  #build(
    subnet: SubnetDefinition,
    leases: readonly LeaseRow[],
    leaving: readonly LeaseRow[],
  ): AddressPool {
    const pool = new AddressPool({
      network: subnet.cidr,
      clock: this.#clock,
      quarantineMs: this.#quarantineMs,
      gateway: ipOf(subnet.gateway),
      ranges: subnet.ranges,
    });
    const rows = leases.filter(({ address }) => contains(subnet.cidr, address));
    for (const row of rows) {
      if (row.freedMs === undefined) pool.acquireAt(row.address, row.owner);
      else if (pool.lookup(row.address).state === "free") pool.quarantine(row.address, row.freedMs);
    }
    for (const { address, owner } of leaving)
      if (contains(subnet.cidr, address) && /free|quarantined/.test(pool.lookup(address).state))
        pool.acquireAt(address, owner);
    // After the leases, so that a range over a leased address is refused.
    for (const range of subnet.reserved) pool.reserve(range, "reserved by configuration");
    const latest = rows.reduce<LeaseRow | undefined>(
      (best, row) => (best === undefined || row.sinceMs >= best.sinceMs ? row : best),
      undefined,
    );
    if (latest !== undefined) pool.seek(latest.address);
    return pool;
  }

  #pools(network: NetworkName): Pools {
    const pools = this.#networks.get(network);
    if (pools !== undefined) return pools;
    throw new PodnetError("NETWORK_NOT_FOUND", `There is no network "${network}"`, {
      hint: "See which there are: podnet network list",
    });
  }

  /** The pool an address of a network is in; undefined when it is outside. */
  #poolOf(network: NetworkName, ip: Ip): AddressPool | undefined {
    for (const [cidr, pool] of this.#pools(network)) if (contains(cidr, ip)) return pool;
    return undefined;
  }

  /** The usage of each pool of a network. */
  subnets(network: NetworkName): SubnetStats[] {
    return Array.from(this.#pools(network), ([cidr, pool]) => ({ cidr, ...pool.stats() }));
  }

  /** Addresses of a subnet that are in quarantine, oldest first, `count` at most. */
  quarantined(network: NetworkName, cidr: Cidr, count: number): readonly Ip[] {
    return this.#pools(network).get(cidr)?.quarantined(count) ?? [];
  }

  /** Counts of all pools of a network together. */
  stats(network: NetworkName): PoolStats {
    const sum = { size: 0n, free: 0n, used: 0n, reserved: 0n, quarantined: 0n };
    for (const { cidr: _cidr, ...stats } of this.subnets(network))
      for (const key of Object.keys(sum) as (keyof PoolStats)[]) sum[key] += stats[key];
    return sum;
  }

  /** The addresses the next automatic interfaces would get of a subnet, in order. Takes nothing. */
  nextFree(network: NetworkName, cidr: Cidr, count: number): readonly Ip[] {
    return this.#pools(network).get(cidr)?.peek(count) ?? [];
  }

  /** Whether no neighbor can know another MAC for an address: nothing has had it before. */
  isFresh(network: NetworkName, ip: Ip): boolean {
    return this.#held.get(network)?.has(ip) === false;
  }

  /**
   * The address that a request without one gets of a subnet, or of the part `among` of it. Takes
   * nothing.
   */
  nextWithin(network: NetworkName, cidr: Cidr, among?: Iterable<Ip>): Ip | undefined {
    if (among === undefined) return this.nextFree(network, cidr, 1)[0];
    const pool = this.#pools(network).get(cidr);
    for (const ip of among) if (pool?.lookup(ip).state === "free") return ip;
    return undefined;
  }

  /** Whether an address of a network can be had, and why not. */
  status(network: NetworkName, ip: Ip): AddressStatus {
    const state = this.#poolOf(network, ip)?.lookup(ip);
    if (state?.state === "used")
      return { kind: "held", by: `${state.owner.kind} ${state.owner.id}` };
    if (state?.state === "reserved") return { kind: "reserved", why: state.reason };
    return { kind: "free" };
  }

  /** The pod or the container that has an address of a network. */
  holderAt(network: NetworkName, ip: Ip): HolderId | undefined {
    const state = this.#networks.has(network) ? this.#poolOf(network, ip)?.lookup(ip) : undefined;
    if (state?.state !== "used") return undefined;
    const { kind, id } = state.owner;
    if (kind === "attachment") return id as AttachmentId;
    return kind === "pod" ? (id.slice(0, id.indexOf("/")) as PodId) : undefined;
  }

  /** Writes the leases of a plan; call inside the transaction that writes its pod or attachment. */
  insert(plan: Claimant): void {
    for (const { network, ip, owner } of claimsOf(plan))
      insertLease(this.#db, network, ip, owner, this.#clock.now());
  }

  /** Follows a committed `insert`. */
  taken(plan: Claimant): void {
    this.#take(claimsOf(plan));
  }

  #take(claims: readonly Claim[]): void {
    for (const { network, ip, owner } of claims) {
      const pool = this.#poolOf(network, ip);
      if (pool === undefined) continue;
      const [found] = pool.peek(1);
      pool.acquireAt(ip, owner);
      this.#held.get(network)?.add(ip);
      // The search continues after the address that it found; a requested address does not move it.
      if (ip === found) pool.seek(ip);
    }
  }

  /**
   * Puts the leases of plans into quarantine; call inside the transaction that deletes their pod or
   * attachment. Forgets those that have rested: a large pool's search comes back to an address so
   * late that callers could fill the table.
   */
  free(plans: readonly Claimant[]): void {
    const now = this.#clock.now();
    for (const { network, ip } of plans.flatMap(claimsOf)) freeLease(this.#db, network, ip, now);
    pruneLeases(this.#db, now - this.#quarantineMs);
  }

  /**
   * Writes the leases of plans that replace others; leases that both have stay as they are. Call
   * inside the transaction that writes the new plans.
   */
  exchange(before: readonly PodClaimant[], after: readonly PodClaimant[]): void {
    const now = this.#clock.now();
    const { lost, won } = difference(before, after);
    for (const { network, ip } of lost) freeLease(this.#db, network, ip, now);
    for (const { network, ip, owner } of won) insertLease(this.#db, network, ip, owner, now);
  }

  /** Follows a committed `exchange`. */
  exchanged(before: readonly PodClaimant[], after: readonly PodClaimant[]): void {
    const { lost, won } = difference(before, after);
    for (const { network, ip } of lost) this.#poolOf(network, ip)?.release(ip);
    this.#take(won);
  }

  /** Follows a committed `free`. */
  freed(plans: readonly Claimant[]): void {
    for (const { network, owner } of plans.flatMap(claimsOf))
      for (const pool of this.#pools(network).values()) pool.releaseOwner(owner);
  }
}
