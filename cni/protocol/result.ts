import type { Cidr, Ip, IpPrefix } from "../../core/address.ts";

/** One link that an attachment made. */
export interface CniInterface {
  readonly name: string;
  /** As its maker wrote it; plugins of others write what they like. */
  readonly mac?: string;
  readonly mtu?: number;
  /** Path of the network namespace it is in; absent: the host's. For a machine its id. */
  readonly sandbox?: string;
  readonly socketPath?: string;
  readonly pciId?: string;
}

export interface CniAddress {
  readonly address: IpPrefix;
  readonly gateway?: Ip;
  /** Place in `interfaces`. */
  readonly interface?: number;
}

export interface CniRoute {
  readonly dst: Cidr;
  /** Absent: on the link, or by the gateway of the address (0.1.0 and 0.2.0). */
  readonly gw?: Ip;
  readonly mtu?: number;
  readonly advmss?: number;
  readonly priority?: number;
  readonly table?: number;
  readonly scope?: number;
}

export interface CniDns {
  readonly nameservers: readonly string[];
  readonly domain?: string;
  readonly search: readonly string[];
  readonly options: readonly string[];
}

/**
 * The properties of an attachment, independent of versions: each version is read into this and
 * written from it.
 */
export interface CniResult {
  readonly interfaces: readonly CniInterface[];
  readonly ips: readonly CniAddress[];
  readonly routes: readonly CniRoute[];
  readonly dns: CniDns;
}

export const noDns: CniDns = { nameservers: [], search: [], options: [] };
