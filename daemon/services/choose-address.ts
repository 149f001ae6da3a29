import { createHash } from "node:crypto";
import { type Cidr, familyOf, type Ip, ipFromBigInt, rangeOf } from "../../core/address.ts";
import { PodnetError } from "../../core/errors.ts";

/**
 * Chooses a free address of a subnet. It begins at a place that the service's name decides: one
 * that is made again has the same address, as a rule, and an address that was given back is not the
 * next that is given. Pure. Throws `POOL_EXHAUSTED`.
 */
export function chooseAddress(cidr: Cidr, name: string, taken: ReadonlySet<Ip>): Ip {
  const { first, last } = usableRange(cidr);
  const size = last - first + 1n;
  const digest = createHash("sha256").update(name).digest("hex");
  const start = BigInt(`0x${digest}`) % size;
  // One more than there are taken is enough.
  const tries = BigInt(taken.size) + 1n;
  for (let i = 0n; i < (tries < size ? tries : size); i++) {
    const ip = ipFromBigInt(familyOf(cidr), first + ((start + i) % size));
    if (!taken.has(ip)) return ip;
  }
  throw new PodnetError("POOL_EXHAUSTED", `No address of ${cidr} is free for a service`, {
    field: "addresses",
    hint: "Delete services that are not used, or set service_cidrs to a larger subnet",
    details: { subnet: cidr },
  });
}

/** All addresses but the first, which names the subnet, and the last, IPv4's broadcast. Pure. */
export function usableRange(cidr: Cidr): { first: bigint; last: bigint } {
  const { first, last } = rangeOf(cidr);
  return { first: first + 1n, last: last - 1n };
}
