import type { Cidr, Ip, IpPrefix } from "../core/address.ts";
import type { HostAccess } from "../core/host-access.ts";
import type { IpRange } from "../core/ip-range.ts";
import type { IfName, NetworkName } from "../core/names.ts";
import type { RateLimits } from "../core/rate-limits.ts";
import type { InlineRules } from "./pod-spec.ts";

/** A network as asked for, every field checked by itself. */
export interface NetworkSpec {
  readonly name: NetworkName;
  /** Undefined: made of the name, or as it is. */
  readonly bridge?: IfName;
  /** One or two, of different families. */
  readonly subnets: readonly SubnetSpec[];
  readonly mtu: number;
  readonly dns: readonly Ip[];
  readonly dnsSearch: readonly string[];
  readonly masquerade: boolean;
  readonly isolated: boolean;
  readonly vlanFiltering: boolean;
  /** Absent: as the node is configured. */
  readonly resolver?: boolean;
  /** Pods reach the clouds' metadata outside of this host; absent: no. */
  readonly cloudMetadata?: true;
  /** Connections that other programs on this host translate reach pods; absent: only containers. */
  readonly acceptTranslated?: true;
  /** The sources that reach all of the network; absent: none do. */
  readonly admit?: readonly Cidr[];
  /** What pods reach on the host beyond what podnet serves there; absent: nothing. */
  readonly hostAccess?: HostAccess;
  /** Connections of each pod at most, 0 is no limit; absent: `usualShare`. */
  readonly connections?: number;
  /** Of each interface that does not say otherwise; absent: unlimited. */
  readonly limits?: RateLimits;
  /** Rules of its own, as a policy file has them; `policy/` reads them. Absent: none. */
  readonly policy?: InlineRules;
}

export interface SubnetSpec {
  /** With host bits that address is the gateway, else the first. */
  readonly cidr: IpPrefix;
  readonly ranges: readonly IpRange[];
  readonly reserved: readonly IpRange[];
}
