import { hasLength, type InterfaceSpec } from "../../../../api/pod-spec.ts";
import type { IpPrefix } from "../../../../core/address.ts";
import type { Planning } from "./kind.ts";

/**
 * The requested addresses, else those that the interface has: podnet hands out no addresses outside
 * of its own networks.
 */
export const heldAddresses = (
  { addresses }: InterfaceSpec,
  { was }: Planning,
): readonly IpPrefix[] => (addresses ?? was?.addresses ?? []).filter(hasLength);
