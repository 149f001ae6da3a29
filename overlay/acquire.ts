import type { OverlayConfig } from "./flannel/config.ts";
import { leaseKey, sameSubnets, type Subnets } from "./flannel/key.ts";
import { create, type Resolved, resolved, rest } from "./intent-kinds.ts";
import type { LeaseState, Moment } from "./lease-state.ts";
import { claimOf, ownLeases, refusalOf } from "./own-leases.ts";
import type { Lease, Leases } from "./registry.ts";
import { chooseSubnets, fits } from "./subnets.ts";

/**
 * Acquires subnets for a host that has none, or none that fit: those of its own keys, its former
 * ones, or free ones.
 */
export function acquire(
  state: LeaseState,
  config: OverlayConfig,
  leases: Leases,
  { draw }: Moment,
): Resolved {
  const { settings, previous, losses } = state;
  const mine = ownLeases(state, config, leases);
  const fitting = mine
    .filter(
      ({ key, subnets }) =>
        fits(subnets, config) &&
        key === leaseKey(settings.prefix, subnets) &&
        key !== state.own?.key,
    )
    .toSorted((a, b) => rank(b, previous) - rank(a, previous));
  const [kept] = fitting;
  if (state.candidate === undefined && kept !== undefined) {
    const claim = claimOf(state, kept.subnets, config, leases);
    if (claim.kind !== "write") return resolved(rest, refusalOf(claim, kept.subnets));
    const permanent = kept.grant === 0n;
    return resolved({
      kind: "commit",
      fresh: !permanent,
      candidate: kept.subnets,
      transaction: (grant) => ({
        compares: [{ key: kept.key, modRevision: kept.modRevision }],
        puts: [{ write: claim.write, grant: permanent ? 0n : grant }],
        deletes: [],
      }),
    });
  }
  // An administrator made the reservations, so they stay.
  const unfit = mine.filter((lease) => lease.grant !== 0n && !fitting.includes(lease));
  const keys = new Set(unfit.map(({ key }) => key));
  const subnets =
    state.candidate ?? chooseSubnets({ config, previous, leases, without: keys, draw, losses });
  if (subnets === undefined) return resolved(rest, { kind: "exhausted" });
  const claim = claimOf(state, subnets, config, leases);
  const usable = claim.kind === "write" && fits(subnets, config);
  if (state.candidate !== undefined && !usable) return resolved({ kind: "cancel" });
  if (claim.kind !== "write") return resolved(rest, refusalOf(claim, subnets));
  return resolved(create(claim.write, subnets, unfit));
}

/** Which of its own leases a host takes: the one it had, a reservation, the newest. */
const rank = (lease: Lease, previous: Subnets | undefined): number =>
  previous !== undefined && sameSubnets(lease.subnets, previous)
    ? Infinity
    : lease.grant === 0n
      ? Number.MAX_SAFE_INTEGER
      : Number(lease.modRevision);
