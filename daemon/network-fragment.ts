import { familyOf } from "../core/address.ts";
import type { NetworkFragment } from "../network/desired.ts";
import type { Config } from "./config/config.ts";

/** The configured network as the host is to have it. NAT and forwarding are IPv4's; see `networkGap`. */
export function networkFragment(config: Config): NetworkFragment {
  const { network } = config;
  const ipv4 = familyOf(network.cidr) === 4;
  return {
    kind: "network",
    key: network.name,
    bridge: network.bridge,
    gateways: [network.gateway],
    mtu: network.mtu,
    masquerade: ipv4 ? [network.cidr] : [],
    firewall: !config.disableIptables,
    chain: config.iptablesChain,
    forward: ipv4,
  };
}

/** What pods of this network lack that one would expect, for people; undefined when nothing. */
export function networkGap({ gateways }: NetworkFragment): string | undefined {
  if (gateways.every((gateway) => familyOf(gateway) === 4)) return undefined;
  return "IPv6 has neither NAT nor filter rules: pods reach the host and each other, what lies beyond needs routes and rules of your own";
}
