import { type Ip, ipOf } from "../../core/address.ts";
import type { Clock } from "../../core/clock.ts";
import { PodnetError } from "../../core/errors.ts";
import type { NetworkName, PodId } from "../../core/names.ts";
import type { Owner } from "../../ipallocator/owner.ts";
import { AddressPool, type PoolStats } from "../../ipallocator/pool.ts";
import type { NetworkConfig } from "../config/config.ts";
import type { Database } from "../store/database.ts";
import { freeLease, insertLease, type LeaseRow, listLeases, pruneLeases } from "../store/leases.ts";
import type { PodPlan } from "./pod-plan.ts";
import type { AddressStatus } from "./snapshot.ts";

/** Owner of an interface's addresses. */
const ownerOf = (podId: PodId, position: number): Owner => ({
  kind: "pod",
  id: `${podId}/${position}`,
});

/** One address of a plan, with the interface it is for. */
interface Claim {
  readonly network: NetworkName;
  readonly ip: Ip;
  readonly owner: Owner;
}

const claimsOf = (plan: PodPlan): Claim[] =>
  plan.interfaces.flatMap(({ network, addresses, position }) =>
    addresses.map((address) => ({
      network,
      ip: ipOf(address),
      owner: ownerOf(plan.podId, position),
    })),
  );

/** What one plan claims and the other does not. */
function difference(before: PodPlan, after: PodPlan): { lost: Claim[]; won: Claim[] } {
  const key = ({ network, ip, owner }: Claim): string => `${network} ${ip} ${owner.id}`;
  const without = (all: Claim[], others: Claim[]): Claim[] => {
    const known = new Set(others.map(key));
    return all.filter((claim) => !known.has(key(claim)));
  };
  const [had, has] = [claimsOf(before), claimsOf(after)];
  return { lost: without(had, has), won: without(has, had) };
}

/**
 * The pools of all networks, beside their rows. The rows are the truth: they are written first, and the pools,
 * which only make finding fast, follow a commit that has succeeded.
 */
export class Addresses {
  readonly #db: Database;
  readonly #clock: Clock;
  readonly #quarantineMs: number;
  readonly #pools = new Map<NetworkName, AddressPool>();

  /** Builds the pools from configuration and rows. */
  constructor(
    db: Database,
    networks: readonly NetworkConfig[],
    quarantineMs: number,
    clock: Clock,
  ) {
    this.#db = db;
    this.#clock = clock;
    this.#quarantineMs = quarantineMs;
    pruneLeases(db, clock.now() - quarantineMs);
    for (const network of networks) {
      this.#pools.set(
        network.name,
        buildPool(network, listLeases(db, network.name), quarantineMs, clock),
      );
    }
  }

  #pool(network: NetworkName): AddressPool {
    const pool = this.#pools.get(network);
    if (pool === undefined)
      throw new PodnetError("NETWORK_NOT_FOUND", `There is no network "${network}"`);
    return pool;
  }

  stats(network: NetworkName): PoolStats {
    return this.#pool(network).stats();
  }

  /** The addresses the next automatic interfaces would get, in order. Takes nothing. */
  nextFree(network: NetworkName, count: number): readonly Ip[] {
    return this.#pool(network).peek(count);
  }

  /** What stands in the way of an address; undefined when it is outside the network. */
  status(network: NetworkName, ip: Ip): AddressStatus {
    const state = this.#pool(network).lookup(ip);
    if (state.state === "used")
      return { kind: "held", by: `${state.owner.kind} ${state.owner.id}` };
    if (state.state === "reserved") return { kind: "reserved", why: state.reason };
    return { kind: "free" };
  }

  /** Writes the leases of a plan; call inside the transaction that writes its pod. */
  insert(plan: PodPlan): void {
    for (const { network, ip, owner } of claimsOf(plan)) {
      insertLease(this.#db, network, ip, { kind: "pod", id: owner.id }, this.#clock.now());
    }
  }

  /** Follows a committed `insert`. */
  taken(plan: PodPlan): void {
    this.#take(claimsOf(plan));
  }

  #take(claims: readonly Claim[]): void {
    for (const { network, ip, owner } of claims) {
      const pool = this.#pool(network);
      const [found] = pool.peek(1);
      pool.acquireAt(ip, owner);
      // The search goes on behind what it had found; an address asked for by name does not move it.
      if (ip === found) pool.seek(ip);
    }
  }

  /**
   * Puts the leases of a plan into quarantine; call inside the transaction that deletes its pod. Forgets those that
   * have rested: a large pool's search comes back to an address so late that callers could fill the table.
   */
  free(plan: PodPlan): void {
    const now = this.#clock.now();
    for (const { network, ip } of claimsOf(plan)) freeLease(this.#db, network, ip, now);
    pruneLeases(this.#db, now - this.#quarantineMs);
  }

  /**
   * Writes the leases of a plan that takes the place of another: what both have stays as it is. Call inside the
   * transaction that writes the new one.
   */
  exchange(before: PodPlan, after: PodPlan): void {
    const now = this.#clock.now();
    const { lost, won } = difference(before, after);
    for (const { network, ip } of lost) freeLease(this.#db, network, ip, now);
    for (const { network, ip, owner } of won)
      insertLease(this.#db, network, ip, { kind: "pod", id: owner.id }, now);
  }

  /** Follows a committed `exchange`. */
  exchanged(before: PodPlan, after: PodPlan): void {
    const { lost, won } = difference(before, after);
    for (const { network, ip } of lost) this.#pool(network).release(ip);
    this.#take(won);
  }

  /** Follows a committed `free`. */
  freed(plan: PodPlan): void {
    for (const { network, owner } of claimsOf(plan)) this.#pool(network).releaseOwner(owner);
  }
}

function buildPool(
  network: NetworkConfig,
  rows: readonly LeaseRow[],
  quarantineMs: number,
  clock: Clock,
): AddressPool {
  const pool = new AddressPool({
    network: network.cidr,
    clock,
    quarantineMs,
    gateway: ipOf(network.gateway),
  });
  for (const row of rows) {
    if (row.freedMs === undefined) pool.acquireAt(row.address, row.owner);
    else pool.quarantine(row.address, row.freedMs);
  }
  // After the leases, so that a range newly configured over one is noticed.
  for (const range of network.reserved) {
    try {
      pool.reserve(range, "reserved by configuration");
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
  const latest = rows.reduce<LeaseRow | undefined>(
    (best, row) => (best === undefined || row.sinceMs >= best.sinceMs ? row : best),
    undefined,
  );
  if (latest !== undefined) pool.seek(latest.address);
  return pool;
}
