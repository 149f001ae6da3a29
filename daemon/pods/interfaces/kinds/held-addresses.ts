import { hasLength } from "../../../../api/pod-spec.ts";
import type { IpPrefix } from "../../../../core/address.ts";
import type { Wish } from "./place.ts";

/** The addresses asked for, else those it has: podnet gives out none where an interface leads to no network of its own. */
export const heldAddresses = ({ wanted, was }: Wish): readonly IpPrefix[] =>
  (wanted.addresses ?? was?.addresses ?? []).filter(hasLength);
