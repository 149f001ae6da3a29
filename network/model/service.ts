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
