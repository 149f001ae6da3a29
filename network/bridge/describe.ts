import { portText, settingsText } from "../model/change.ts";
import {
  fdbMaxLearned,
  type Fragment,
  hasFamily,
  mark,
  type NetworkFragment,
  type PortDesired,
  portGroup,
} from "../model/desired.ts";
import { bridgeMac } from "../model/bridge-mac.ts";
import { ipForwardKey, ipv6ForwardKey } from "./diff-network.ts";
import { networkMark } from "../model/ownership.ts";
import { ratesText } from "../model/rates.ts";

/**
 * The desired state of the host for a fragment, without rules: a line for each link, address and
 * setting. Pure.
 */
export function describeFragment(fragment: Fragment, hostSeed: string): string[] {
  return fragment.kind === "network"
    ? describeNetwork(fragment, hostSeed)
    : fragment.ports.flatMap(describePort);
}

function describeNetwork(network: NetworkFragment, hostSeed: string): string[] {
  const settings = settingsText({
    mac: bridgeMac(hostSeed, network.bridge),
    mtu: network.mtu,
    group: mark.linkGroup,
    alias: networkMark(network.key),
    fdbMaxLearned,
    noLinkLocalLearn: true,
    ...(network.vlanFiltering === true ? { vlanFiltering: true } : {}),
    up: true,
  });
  return [
    `link ${network.bridge} bridge ${settings}`,
    ...network.gateways.map((prefix) => `address ${prefix} on ${network.bridge}`),
    ...(network.forward && hasFamily(network, 4) ? [`sysctl ${ipForwardKey} = 1`] : []),
    ...(network.forward && hasFamily(network, 6) ? [`sysctl ${ipv6ForwardKey} = 1`] : []),
  ];
}

function describePort(port: PortDesired): string[] {
  const { alias, mtu, rates } = port;
  const settings = settingsText({ mtu, group: portGroup(port.bridge), alias, up: true });
  return [
    `port ${port.tap} on ${port.bridge}${portText(port)} ${settings}`,
    ...(rates === undefined ? [] : [`rate ${port.tap} ${ratesText(rates)}`]),
  ];
}
