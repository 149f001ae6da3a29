import { hasLength } from "../../../../api/pod-spec.ts";
import type { IpPrefix } from "../../../../core/address.ts";
import type { Wish } from "./place.ts";

/**
 * The addresses asked for, else those that the interface has: podnet hands out no addresses outside
 * of its own networks.
 */
export const heldAddresses = ({ wanted, was }: Wish): readonly IpPrefix[] =>
  (wanted.addresses ?? was?.addresses ?? []).filter(hasLength);
