import { createHash } from "node:crypto";
import { type Cidr, type Family, familyOf, type Ip } from "../../core/address.ts";
import type { IfName } from "../../core/names.ts";

/** A service as the host is to have it: virtual addresses and ports, and what they lead to. */
export interface ServiceDesired {
  readonly name: string;
  /** The network whose pods reach it; it is the network of its own pods, too. */
  readonly network: string;
  readonly bridge: IfName;
  /** The subnets of the network. */
  readonly subnets: readonly Cidr[];
  /** At most one of each family. */
  readonly addresses: readonly Ip[];
  /** All connections from one address go to one backend. Absent: each goes to any. */
  readonly sticky?: boolean;
  readonly ports: readonly ServicePortDesired[];
}

export interface ServicePortDesired {
  /** Below `mostServicePorts`. No two ports of services on a host have the same number. */
  readonly number: number;
  readonly protocol: "tcp" | "udp" | "sctp";
  readonly port: number;
  readonly backends: readonly BackendDesired[];
}

export interface BackendDesired {
  readonly address: Ip;
  readonly port: number;
  /** Its part of new connections, relative to the other weights. 0: it gets none. */
  readonly weight: number;
}

/** The addresses to which new connections of these services go. Pure. */
export const servedAddresses = (services: readonly ServiceDesired[]): ReadonlySet<Ip> =>
  new Set(
    services
      .flatMap(({ ports }) => ports.flatMap(({ backends }) => backends))
      .flatMap(({ address, weight }) => (weight > 0 ? [address] : [])),
  );

/** Ports of all services on a host, at most: the number of a slot has 14 bits for its port. */
export const mostServicePorts = 16_384;
/** Slots of a port, at most: 1,024 backends with the weight 100, and the pods of a bridge. */
export const mostSlots = 262_144;

/** Slots of all services on a host, at most: each is an element in podnetd and in the kernel. */
export const mostSlotsOfAll = 262_144;

/**
 * The backends of a port in one family, each as often as its weight asks for: a new connection goes
 * to one of these slots, by chance. Weights are divided by what they have in common. Pure.
 */
export function slotsOf(backends: readonly BackendDesired[], family: Family): BackendDesired[] {
  const some = backends.filter(({ address, weight }) => weight > 0 && familyOf(address) === family);
  const divisor = commonWeight(some);
  return some.flatMap((backend) => Array.from({ length: backend.weight / divisor }, () => backend));
}

/** How many slots backends of these weights have. Pure. */
export function countSlots(backends: readonly Pick<BackendDesired, "weight">[]): number {
  const total = backends.reduce((sum, { weight }) => sum + weight, 0);
  return total === 0 ? 0 : total / commonWeight(backends);
}

const commonWeight = (backends: readonly Pick<BackendDesired, "weight">[]): number =>
  backends.reduce((common, { weight }) => commonDivisor(common, weight), 0);

const commonDivisor = (a: number, b: number): number => (b === 0 ? a : commonDivisor(b, a % b));

/**
 * The slots of a port whose clients stay with their backends: a client's address decides on one of
 * them. Their number changes only where there are many more backends, and one backend more or less
 * moves the clients of its own slots and few others: each takes slots in an order of its own, in
 * turns (Maglev, Eisenbud and others, NSDI 2016). Pure.
 */
export function stickySlots(backends: readonly BackendDesired[], family: Family): BackendDesired[] {
  const some = backends.filter(({ address, weight }) => weight > 0 && familyOf(address) === family);
  if (some.length === 0) return [];
  const size = countStickySlots(some);
  const greatest = Math.max(...some.map(({ weight }) => weight));
  const turns = some.map((backend) => {
    const digest = createHash("sha256").update(`${backend.address} ${backend.port}`).digest();
    // An odd step meets every slot of a power of two.
    const [next, step] = [digest.readUInt32LE(0) % size, (digest.readUInt32LE(4) % size) | 1];
    return { backend, next, step, credit: 0 };
  });
  const slots: (BackendDesired | undefined)[] = Array.from({ length: size });
  for (let left = size; left > 0; )
    for (const turn of turns) {
      turn.credit += turn.backend.weight;
      if (turn.credit < greatest || left === 0) continue;
      turn.credit -= greatest;
      while (slots[turn.next] !== undefined) turn.next = (turn.next + turn.step) % size;
      slots[turn.next] = turn.backend;
      left--;
    }
  return slots.flatMap((slot) => slot ?? []);
}

/** How many slots such a port has: some for each backend. Pure. */
export function countStickySlots(backends: readonly Pick<BackendDesired, "weight">[]): number {
  const units = countSlots(backends);
  if (units === 0) return 0;
  return units <= 64 ? 1024 : units <= 1024 ? 16_384 : 65_536;
}
