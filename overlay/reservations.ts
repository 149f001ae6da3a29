import type { Ipv4, Ipv6 } from "../core/address.ts";
import { assertNever } from "../core/brand.ts";
import { PodnetError } from "../core/errors.ts";
import { leaseWrite, sameWrite } from "./claim.ts";
import type { OverlayConfig } from "./flannel/config.ts";
import { leaseKey, type Subnets, subnetsText } from "./flannel/key.ts";
import { leasesPrefix, type Prefix } from "./flannel/prefix.ts";
import { type Lease, type Leases, Registry } from "./registry.ts";
import type { GrantId, LeaseStore, LeaseTransaction } from "./store.ts";
import { fits, meet } from "./subnets.ts";

/** Subnets to be kept for the host that has an address. */
export interface Reservation {
  readonly subnets: Subnets;
  readonly publicIp: Ipv4 | undefined;
  readonly publicIp6: Ipv6 | undefined;
}

/** The parts that reservations are made with. */
interface Place {
  readonly prefix: Prefix;
  readonly config: OverlayConfig;
  readonly leases: Leases;
}

/** How long a lease of flannel's lasts. */
const usualSeconds = 86_400;
/** The number of attempts while other hosts write concurrently. */
const tries = 10;

/** Leases that do not end. */
export const reservationsIn = (leases: Leases): Lease[] =>
  [...leases].filter((entry): entry is Lease => entry.kind === "lease" && entry.grant === 0n);

/**
 * The transaction that makes subnets a reservation: a key without an etcd lease. An existing lease
 * of the subnets keeps its value, and no longer ends. Undefined if there is nothing to do. Throws
 * `INVALID_ARGUMENT`, `SUBNET_TAKEN`.
 */
function reserve(
  { prefix, config, leases }: Place,
  { subnets, publicIp, publicIp6 }: Reservation,
): LeaseTransaction | undefined {
  if (!fits(subnets, config))
    throw new PodnetError(
      "INVALID_ARGUMENT",
      `The overlay does not hand out ${subnetsText(subnets)}`,
      { field: "subnet", hint: `Choose one ${spaceText(config)}` },
    );
  const key = leaseKey(prefix, subnets);
  const there = leases.get(key);
  if (there?.kind === "lease") {
    const { value, grant, modRevision } = there;
    const same =
      config.v4 === undefined ? value.publicIp6 === publicIp6 : value.publicIp === publicIp;
    if (!same) throw taken(subnets, there);
    if (grant === 0n) return undefined;
    return {
      compares: [{ key, modRevision }],
      puts: [{ write: sameWrite(there), grant: 0n }],
      deletes: [],
    };
  }
  for (const entry of leases)
    if (entry.kind === "lease" && meet(entry.subnets, subnets)) throw taken(subnets, entry);
  const claim = leaseWrite({
    prefix,
    config,
    leases,
    subnets,
    // Its backend says the rest when it comes.
    host: { publicIp, publicIp6, attributes: { type: "alloc" } },
    without: new Set(),
  });
  switch (claim.kind) {
    case "write":
      return {
        compares: [{ key, modRevision: there?.modRevision ?? 0n }],
        puts: [{ write: claim.write, grant: 0n }],
        deletes: [],
      };
    case "shared":
      throw taken(subnets, claim.holder);
    case "address":
    case "families":
      throw new PodnetError("INVALID_ARGUMENT", "The host's public address is missing", {
        field: "public_ip",
        hint: "Name one of each family that the overlay has",
      });
    default:
      return assertNever(claim);
  }
}

/**
 * The transaction that gives a reservation an end again, a day from now. Undefined if the key is
 * not a reservation.
 */
function unreserve(
  leases: Leases,
  prefix: Prefix,
  subnets: Subnets,
  grant: GrantId,
): LeaseTransaction | undefined {
  const there = leases.get(leaseKey(prefix, subnets));
  if (there?.kind !== "lease" || there.grant !== 0n) return undefined;
  return {
    compares: [{ key: there.key, modRevision: there.modRevision }],
    puts: [{ write: sameWrite(there), grant }],
    deletes: [],
  };
}

const spaceText = ({ v4, v6 }: OverlayConfig): string =>
  [v4, v6]
    .flatMap((space) =>
      space === undefined ? [] : [`from ${space.first} to ${space.last} with /${space.length}`],
    )
    .join(" and ");

const taken = (subnets: Subnets, holder: Lease): PodnetError =>
  new PodnetError(
    "SUBNET_TAKEN",
    `${subnetsText(subnets)} cannot be reserved: another host has it`,
    {
      hint: "Choose another subnet, or have that host leave the overlay",
      details: {
        holder: subnetsText(holder.subnets),
        publicIp: holder.value.publicIp ?? holder.value.publicIp6 ?? "",
      },
    },
  );

export interface Reserving {
  readonly prefix: Prefix;
  readonly config: OverlayConfig;
  readonly store: LeaseStore;
}

/**
 * Makes a reservation; retries if another host has written in between. Throws the errors of
 * `reserve` and of the store.
 */
export const addReservation = (
  { prefix, config, store }: Reserving,
  reservation: Reservation,
  signal: AbortSignal,
): Promise<void> =>
  commitOnList(store, prefix, signal, (leases) => reserve({ prefix, config, leases }, reservation));

/** Gives a reservation the time of a lease. Absence is success. Throws the errors of the store. */
export async function removeReservation(
  { prefix, store }: Pick<Reserving, "prefix" | "store">,
  subnets: Subnets,
  signal: AbortSignal,
): Promise<void> {
  const grant = await store.grant(undefined, usualSeconds, signal);
  await commitOnList(store, prefix, signal, (leases) => unreserve(leases, prefix, subnets, grant));
}

async function commitOnList(
  store: LeaseStore,
  prefix: Prefix,
  signal: AbortSignal,
  plan: (leases: Leases) => LeaseTransaction | undefined,
): Promise<void> {
  for (let left = tries; left > 0; left--) {
    const leases = new Registry();
    leases.apply(await store.list(leasesPrefix(prefix), signal));
    const transaction = plan(leases);
    if (transaction === undefined) return;
    const { kind } = await store.commit(transaction, signal);
    if (kind === "done") return;
  }
  throw new PodnetError("SUBNET_TAKEN", "Other clients keep changing this subnet", {
    hint: "See who else writes to the overlay, and try again",
  });
}
