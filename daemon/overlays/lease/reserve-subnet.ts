import type { Ipv4, Ipv6 } from "../../../core/address.ts";
import { PodnetError } from "../../../core/errors.ts";
import type { OverlayConfig } from "../../../overlay/flannel/config.ts";
import { leaseKey, type Subnets } from "../../../overlay/flannel/key.ts";
import type { Prefix } from "../../../overlay/flannel/prefix.ts";
import type { Registry } from "../../../overlay/registry.ts";
import {
  addReservation,
  removeReservation,
  type Reservation,
  reservationsIn,
} from "../../../overlay/reservations.ts";
import type { LeaseStore } from "../../../overlay/store.ts";
import type { ReservationRequest } from "../view.ts";

/** One overlay as far as it is known here. */
export interface KnownOverlay {
  readonly prefix: Prefix;
  readonly config: OverlayConfig;
  readonly registry: Registry;
}

/** The reservations. */
export const keptIn = ({ registry }: KnownOverlay): Reservation[] =>
  reservationsIn(registry).map(({ subnets, value: { publicIp, publicIp6 } }) => ({
    subnets,
    publicIp,
    publicIp6,
  }));

/**
 * Keeps a subnet for a host: the one it has, unless another is named. Throws `INVALID_ARGUMENT`,
 * `SUBNET_TAKEN`.
 */
export async function reserveSubnet(
  { prefix, config, registry }: KnownOverlay,
  { publicIps, subnets }: ReservationRequest,
  store: LeaseStore,
  signal: AbortSignal,
): Promise<Reservation> {
  const publicIp = publicIps.find((ip) => !ip.includes(":")) as Ipv4 | undefined;
  const publicIp6 = publicIps.find((ip) => ip.includes(":")) as Ipv6 | undefined;
  const address = config.v4 === undefined ? publicIp6 : publicIp;
  const [leased] = address === undefined ? [] : registry.at(address);
  const chosen = subnets ?? leased?.subnets;
  if (chosen === undefined)
    throw new PodnetError("INVALID_ARGUMENT", `${publicIps.join(" and ")} has no lease`, {
      field: "subnets",
      hint: "Name the subnet to be kept for it",
    });
  const reservation = { subnets: chosen, publicIp, publicIp6 };
  await addReservation({ prefix, config, store }, reservation, signal);
  return reservation;
}

/** Keeps it no longer. Answers whether it was kept. */
export async function unreserveSubnet(
  { prefix, registry }: KnownOverlay,
  subnets: Subnets,
  store: LeaseStore,
  signal: AbortSignal,
): Promise<boolean> {
  const there = registry.get(leaseKey(prefix, subnets));
  await removeReservation({ prefix, store }, subnets, signal);
  return there?.kind === "lease" && there.grant === 0n;
}
