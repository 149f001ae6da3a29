import { networkOf, type IpPrefix } from "../../core/address.ts";
import type {
  NetworkDefinition,
  SubnetDefinition,
} from "../../daemon/config/network-definition.ts";

/** A network as the daemon holds it, with a subnet for each gateway. */
export const definition = (
  name: string,
  gateways: readonly string[],
  more: Partial<NetworkDefinition> = {},
  subnet: Partial<SubnetDefinition> = {},
): NetworkDefinition => ({
  name: name as never,
  bridge: `pn-${name}` as never,
  subnets: gateways.map((gateway) => ({
    cidr: networkOf(gateway as IpPrefix),
    gateway: gateway as IpPrefix,
    ranges: [],
    reserved: [],
    ...subnet,
  })),
  mtu: 1500,
  dns: [],
  dnsSearch: [],
  masquerade: true,
  isolated: false,
  vlanFiltering: false,
  mayOverlap: false,
  ...more,
});

/** A row of one that is there. */
export const readyRow = { state: "ready", configured: true, createdMs: 0 } as const;
