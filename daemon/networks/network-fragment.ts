import type { NetworkFragment } from "../../network/model/desired.ts";
import type { Config } from "../config/config.ts";
import { carried, type NetworkDefinition } from "../config/network-definition.ts";
import { goneSubnets } from "./refuse-update.ts";

/** How this node makes rules. */
export type FirewallConfig = Pick<Config, "disableIptables" | "iptablesChain"> &
  Partial<Pick<Config, "guardEthertypes" | "serviceCidrs">>;

/** The desired state of a network on the host. */
export function networkFragment(
  { name, bridge, subnets, ...network }: NetworkDefinition,
  { disableIptables, iptablesChain, guardEthertypes = [] }: FirewallConfig,
): NetworkFragment {
  return {
    kind: "network",
    key: name,
    bridge,
    gateways: subnets.map(({ gateway }) => gateway),
    mtu: carried(network),
    masquerade: network.masquerade ? subnets.map(({ cidr }) => cidr) : [],
    firewall: !disableIptables,
    chain: iptablesChain,
    forward: true,
    ...(network.isolated ? { isolated: true } : {}),
    ...(network.cloudMetadata === true ? { cloudMetadata: true } : {}),
    ...(network.acceptTranslated === true ? { acceptTranslated: true } : {}),
    ...(network.admit === undefined ? {} : { admit: network.admit }),
    ...(network.hostAccess === undefined ? {} : { hostAccess: network.hostAccess }),
    ...(network.connections === undefined ? {} : { connections: network.connections }),
    ...(network.dns.length === 0 ? {} : { dns: network.dns }),
    ...(guardEthertypes.length === 0 ? {} : { ethertypes: guardEthertypes }),
    ...(network.vlanFiltering ? { vlanFiltering: true } : {}),
    ...(network.mayOverlap ? { mayOverlap: true } : {}),
  };
}

/**
 * The desired state that leads from earlier definitions, or what is left of them, to a new one:
 * gateways that it does not have are removed.
 */
export function fragmentBetween(
  from: readonly NetworkDefinition[],
  to: NetworkDefinition,
  config: FirewallConfig,
): NetworkFragment {
  const gone = from.flatMap((each) => goneSubnets(each, to)).map(({ gateway }) => gateway);
  const retired = [...new Set(gone)];
  return { ...networkFragment(to, config), ...(retired.length === 0 ? {} : { retired }) };
}
