import type { InlineRules } from "../../api/pod-spec.ts";
import { type Cidr, type Family, familyOf, type Ip, type IpPrefix } from "../../core/address.ts";
import type { HostAccess } from "../../core/host-access.ts";
import type { RateLimits } from "../../core/rate-limits.ts";
import type { IpRange } from "../../core/ip-range.ts";
import type { IfName, NetworkName } from "../../core/names.ts";

/** A network, every value decided. Plain JSON. */
export interface NetworkDefinition {
  readonly name: NetworkName;
  readonly bridge: IfName;
  /** One or two, of different families: IPv4 first. */
  readonly subnets: readonly SubnetDefinition[];
  /** MTU of new pods. */
  readonly mtu: number;
  /**
   * The bridge's MTU, where it is larger: for pods that got a larger one while the network followed
   * an overlay with a larger MTU.
   */
  readonly bridgeMtu?: number;
  /** DNS servers of guests without their own; empty: the host's. */
  readonly dns: readonly Ip[];
  readonly dnsSearch: readonly string[];
  /** Packets that leave the host get the host's address. */
  readonly masquerade: boolean;
  /** Pods reach the gateway and not each other. */
  readonly isolated: boolean;
  readonly vlanFiltering: boolean;
  /** Pods ask its gateways for names; absent: as the node is configured. */
  readonly resolver?: boolean;
  /** Pods reach the clouds' metadata outside of this host; absent: no. */
  readonly cloudMetadata?: true;
  /**
   * Connections that other programs on this host translate reach pods too; absent: containers
   * alone.
   */
  readonly acceptTranslated?: true;
  /** Sources that reach all of the network; absent: none. */
  readonly admit?: readonly Cidr[];
  /** What pods reach on the host beyond what podnet serves there; absent: nothing. */
  readonly hostAccess?: HostAccess;
  /** Connections that each pod may keep tracked, 0 is no limit; absent: `usualShare`. */
  readonly connections?: number;
  /** Of each interface that does not say otherwise; absent: unlimited. */
  readonly limits?: RateLimits;
  /** Rules of its own, as they were given; absent: none. */
  readonly policy?: InlineRules;
  /** Its creator allowed its subnets to overlap with those of the host. */
  readonly mayOverlap: boolean;
}

/** The address families that none of these networks has. */
export const unusedFamilies = (networks: readonly NetworkDefinition[]): Family[] =>
  ([4, 6] as const).filter((family) =>
    networks.every(({ subnets }) => subnets.every(({ cidr }) => familyOf(cidr) !== family)),
  );

/** The longest packets on a network's bridge. */
export const carried = ({ mtu, bridgeMtu = mtu }: Pick<NetworkDefinition, "mtu" | "bridgeMtu">) =>
  Math.max(mtu, bridgeMtu);

/** Whether two networks have the same subnets, with the same gateways. */
export const sameSubnets = (a: NetworkDefinition, b: NetworkDefinition): boolean =>
  a.subnets.length === b.subnets.length &&
  a.subnets.every(({ gateway }, i) => b.subnets[i]?.gateway === gateway);

export interface SubnetDefinition {
  readonly cidr: Cidr;
  /** The bridge's own address, with the subnet's length. */
  readonly gateway: IpPrefix;
  /** The only source of automatic addresses; empty: all of the subnet. */
  readonly ranges: readonly IpRange[];
  /** Never given. */
  readonly reserved: readonly IpRange[];
}
