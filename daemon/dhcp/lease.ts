import type { Cidr, Ip, IpPrefix, Mac } from "../../core/address.ts";

/**
 * All settings of a guest for one of its ports. Pure data, made of the pod's plan: there is no
 * lease to remember.
 */
export interface PortLease {
  /** Only this sender is answered. */
  readonly mac: Mac;
  readonly mtu: number;
  readonly hostname: string;
  readonly search: readonly string[];
  /** Absent: no DHCPv4. */
  readonly v4?: {
    readonly address: IpPrefix;
    /** Who answers, and is asked again later: the network's own address. */
    readonly server: Ip;
    /** Of the default route; absent where this interface has none. */
    readonly router?: Ip;
    readonly routes: readonly LeaseRoute[];
    readonly dns: readonly Ip[];
  };
  /** Absent: neither router advertisements nor DHCPv6. */
  readonly v6?: {
    readonly addresses: readonly IpPrefix[];
    /** Networks that are on the link. */
    readonly onLink: readonly Cidr[];
    /** Whether who advertises is the default router. */
    readonly isRouter: boolean;
    /** By who advertises. */
    readonly routes: readonly Cidr[];
    readonly dns: readonly Ip[];
  };
}

export interface LeaseRoute {
  readonly destination: Cidr;
  /** Absent: on the link. */
  readonly gateway?: Ip;
}

/**
 * Seconds. Addresses are the pod's for as long as it exists: a guest keeps them whatever podnetd
 * does, and renews often enough to get other changes soon.
 */
export const leaseTimes = { renew: 3600, rebind: 29 * 86_400, lease: 30 * 86_400 } as const;
