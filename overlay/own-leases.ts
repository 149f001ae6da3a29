import { assertNever } from "../core/brand.ts";
import { type Claim, leasesOf, leaseWrite } from "./claim.ts";
import type { OverlayConfig } from "./flannel/config.ts";
import type { Subnets } from "./flannel/key.ts";
import type { LeaseState, Trouble } from "./lease-state.ts";
import type { Lease, Leases } from "./registry.ts";

/** Every lease that is the host's, by its mark or its addresses; of hosts that are gone as well. */
export const ownLeases = (state: LeaseState, config: OverlayConfig, leases: Leases): Lease[] =>
  leasesOf(state.host, state.own?.subnets ?? state.previous, config, leases, (owner) =>
    state.takesOver ? true : state.departed.has(owner),
  );

/** The value that the host would write for these subnets, or the reason why it must not. */
export function claimOf(
  state: LeaseState,
  subnets: Subnets,
  config: OverlayConfig,
  leases: Leases,
): Claim {
  const { host } = state;
  const { prefix } = state.settings;
  const without = new Set(ownLeases(state, config, leases).map(({ key }) => key));
  return leaseWrite({ prefix, config, host, subnets, leases, without });
}

/** Why they cannot be claimed. */
export function refusalOf(claim: Exclude<Claim, { kind: "write" }>, subnets: Subnets): Trouble {
  switch (claim.kind) {
    case "shared":
      return { kind: "shared", ip: claim.ip, holder: claim.holder.key };
    case "address":
      return { kind: "no-address", family: claim.family };
    case "families":
      return { kind: "misfit", subnets };
    default:
      return assertNever(claim);
  }
}
