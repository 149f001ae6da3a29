import {
  familyBits,
  familyOf,
  type IpPrefix,
  ipOf,
  lengthOf,
  networkOf,
  overlaps,
} from "../../core/address.ts";
import { PodnetError } from "../../core/errors.ts";
import type { IfName } from "../../core/names.ts";
import { bridgeMac } from "../model/bridge-mac.ts";
import type { Change, Setting } from "../model/change.ts";
import { fdbMaxLearned, hasFamily, mark, type NetworkFragment } from "../model/desired.ts";
import type { ObservedLink, ObservedNetwork } from "../model/observed.ts";
import { networkMark, parseOwner } from "../model/ownership.ts";

export const ipForwardKey = "net.ipv4.ip_forward";
export const ipv6ForwardKey = "net.ipv6.conf.all.forwarding";

/**
 * Settings of a bridge we made, by their keys. (With slashes: an interface's name may hold dots.)
 */
export function bridgeSettings({ bridge, gateways }: NetworkFragment): readonly Setting[] {
  const hasIpv6 = gateways.some((gateway) => familyOf(gateway) === 6);
  return [
    // A guest could otherwise make itself the host's IPv6 router, as long as the host does not
    // forward IPv6.
    { key: `net/ipv6/conf/${bridge}/accept_ra`, value: "0" },
    // Without it the bridge has a link-local address, by which guests of an IPv4 network reach the
    // host past every rule.
    { key: `net/ipv6/conf/${bridge}/disable_ipv6`, value: hasIpv6 ? "0" : "1" },
  ];
}

/**
 * The changes that bring a network's links and settings from observed to desired; the firewall is
 * compared apart. Pure. Throws `BRIDGE_CONFLICT` when the bridge's name or its subnet is taken by
 * something that is not ours, and `UNSUPPORTED` when it is to filter VLANs and cannot. With
 * `policed`, a pod on the bridge has a policy.
 */
export function diffNetwork(
  desired: NetworkFragment,
  observed: ObservedNetwork,
  hostSeed: string,
  policed = false,
): Change[] {
  const alias = networkMark(desired.key);
  const changes: Change[] = [];
  const { bridge } = observed;
  if (bridge === undefined) {
    refuseOverlap(desired, observed);
    refuseVlans(desired, observed);
    const { bridge: name, mtu } = desired;
    const settings = bridgeSettings(desired);
    const mac = bridgeMac(hostSeed, name);
    changes.push({ kind: "create-bridge", name, mac, mtu, alias, settings });
    changes.push(...missingAddresses(desired, observed));
    const filtering = {
      ...(desired.vlanFiltering === true ? { vlanFiltering: true } : {}),
      ...(policed ? { nfCall: true } : {}),
    };
    changes.push({ kind: "set-link", name, set: { ...filtering, up: true } });
  } else if (bridge.alias === alias || isUnfinished(bridge, hostSeed)) {
    changes.push(...repairOurs(desired, observed, bridge, hostSeed, policed));
  } else {
    adopt(desired, observed, bridge);
    // Left as it is otherwise: no mark, no MTU, no address of ours.
    if (!observed.pinned && bridge.mac !== undefined)
      changes.push({ kind: "pin-mac", name: bridge.name, mac: bridge.mac });
    if (!bridge.up) changes.push({ kind: "set-adopted", name: bridge.name, up: true });
  }
  return [...changes, ...missingForwarding(desired, observed)];
}

function refuseVlans({ bridge, vlanFiltering }: NetworkFragment, observed: ObservedNetwork): void {
  if (vlanFiltering === true && observed.canFilterVlans === false) throw noVlanFiltering(bridge);
}

/** Some kernels' bridges cannot filter VLANs (CONFIG_BRIDGE_VLAN_FILTERING). */
export const noVlanFiltering = (bridge: IfName, cause?: unknown): PodnetError =>
  new PodnetError("UNSUPPORTED", `Bridge "${bridge}" cannot filter VLANs on this kernel`, {
    field: "vlan_filtering",
    hint: "Leave VLAN filtering out, or boot a kernel with CONFIG_BRIDGE_VLAN_FILTERING",
    details: { bridge },
    cause,
  });

function missingForwarding(desired: NetworkFragment, observed: ObservedNetwork): Change[] {
  if (!desired.forward) return [];
  const keys = [
    [4, ipForwardKey, observed.ipForward],
    [6, ipv6ForwardKey, observed.ipv6Forward],
  ] as const;
  return keys.flatMap(([family, key, from]) =>
    hasFamily(desired, family) && from !== undefined && from !== "1"
      ? [{ kind: "set-sysctl", key, from, to: "1" } as const]
      : [],
  );
}

/**
 * Whether a bridge is ours but not yet marked: the kernel sets group and MAC at its creation, but
 * the alias only afterwards. The group alone proves nothing; the MAC is derived from the name.
 */
export const isUnfinished = (link: ObservedLink, hostSeed: string): boolean =>
  link.alias === undefined &&
  link.group === mark.linkGroup &&
  link.kind === "bridge" &&
  link.mac === bridgeMac(hostSeed, link.name);

function repairOurs(
  desired: NetworkFragment,
  observed: ObservedNetwork,
  bridge: ObservedLink,
  hostSeed: string,
  policed: boolean,
): Change[] {
  if (bridge.kind !== "bridge")
    throw conflict(bridge.name, "it is not a bridge, yet bears our mark");
  refuseVlans(desired, observed);
  const mac = bridgeMac(hostSeed, bridge.name);
  const alias = networkMark(desired.key);
  const set = {
    ...(bridge.alias === alias ? {} : { alias }),
    ...(bridge.mac === mac ? {} : { mac }),
    ...(bridge.mtu === desired.mtu ? {} : { mtu: desired.mtu }),
    ...(bridge.group === mark.linkGroup ? {} : { group: mark.linkGroup }),
    // (A kernel before 6.7 knows no bound.)
    ...((bridge.fdbMaxLearned ?? fdbMaxLearned) === fdbMaxLearned ? {} : { fdbMaxLearned }),
    // (Before 5.0 it reports no such setting.)
    ...(bridge.noLinkLocalLearn === false ? { noLinkLocalLearn: true } : {}),
    ...((bridge.vlanFiltering ?? false) === (desired.vlanFiltering ?? false)
      ? {}
      : { vlanFiltering: desired.vlanFiltering ?? false }),
    ...(policed && bridge.nfCall === false ? { nfCall: true } : {}),
  };
  const changes: Change[] = [];
  if (Object.keys(set).length > 0) changes.push({ kind: "set-link", name: bridge.name, set });
  for (const { key, value } of bridgeSettings(desired)) {
    const from = observed.settings.get(key);
    if (from !== undefined && from !== value)
      changes.push({ kind: "set-sysctl", key, from, to: value });
  }
  // Before others come: with an IPv4 address go those of its subnet that came after it.
  changes.push(...retiredAddresses(desired, observed, bridge));
  changes.push(...missingAddresses(desired, observed));
  if (!bridge.up) changes.push({ kind: "set-link", name: bridge.name, set: { up: true } });
  return changes;
}

const retiredAddresses = (
  { retired = [] }: NetworkFragment,
  { addresses }: ObservedNetwork,
  bridge: ObservedLink,
): Change[] =>
  retired
    .filter((prefix) =>
      addresses.some((held) => held.link === bridge.index && held.prefix === prefix),
    )
    .map((prefix) => ({ kind: "remove-address", link: bridge.name, prefix }));

function missingAddresses(desired: NetworkFragment, observed: ObservedNetwork): Change[] {
  const held = new Set(
    observed.addresses
      .filter((address) => address.link === observed.bridge?.index)
      .map((address) => address.prefix),
  );
  return desired.gateways
    .filter((prefix) => !held.has(prefix))
    .map((prefix) => ({ kind: "add-address", link: desired.bridge, prefix }));
}

/** Takes a foreign bridge, if it is exactly what we would have made. */
function adopt(desired: NetworkFragment, observed: ObservedNetwork, bridge: ObservedLink): void {
  const owner = parseOwner(bridge.alias);
  if (owner !== undefined)
    throw conflict(bridge.name, `it belongs to podnet's ${owner.kind} "${owner.key}"`);
  if (bridge.kind !== "bridge")
    throw conflict(bridge.name, `it is a ${bridge.kind ?? "hardware"} link, not a bridge`);
  if (desired.vlanFiltering === true && bridge.vlanFiltering !== true)
    throw conflict(bridge.name, "it does not filter VLANs");
  const held = observed.addresses
    .filter((address) => address.link === bridge.index)
    .map((address) => address.prefix);
  for (const gateway of desired.gateways) {
    if (held.includes(gateway)) continue;
    const same = held.find((prefix) => ipOf(prefix) === ipOf(gateway));
    const family = held.filter((prefix) => familyOf(prefix) === familyOf(gateway));
    const has =
      same !== undefined
        ? `its mask is another: it has ${same}`
        : family.length === 0
          ? "it has no such address"
          : `it has ${family.join(", ")}`;
    throw conflict(bridge.name, `${has}, and network "${desired.key}" needs ${gateway}`);
  }
}

/**
 * An overlay's device has the base address of the very subnet that its pods are in; no host has
 * that address.
 */
const isTunnelEnd = (prefix: IpPrefix, gateway: IpPrefix): boolean =>
  ipOf(prefix) === ipOf(networkOf(gateway)) && lengthOf(prefix) === familyBits(familyOf(prefix));

/**
 * A new bridge whose subnet is that of a link the host already has would cut the host off from it.
 */
function refuseOverlap(desired: NetworkFragment, observed: ObservedNetwork): void {
  if (desired.mayOverlap === true) return;
  for (const gateway of desired.gateways)
    for (const { link, prefix } of observed.addresses)
      if (overlaps(networkOf(gateway), networkOf(prefix)) && !isTunnelEnd(prefix, gateway)) {
        const name = observed.linkNames.get(link) ?? `link ${link}`;
        throw new PodnetError(
          "BRIDGE_CONFLICT",
          `Network ${networkOf(gateway)} overlaps ${prefix}, which "${name}" has`,
          {
            field: "cidr",
            hint: "Choose a subnet that the host does not use yet",
            details: { bridge: desired.bridge, link: name, address: prefix },
          },
        );
      }
}

function conflict(bridge: IfName, reason: string): PodnetError {
  return new PodnetError(
    "BRIDGE_CONFLICT",
    `Link "${bridge}" exists and cannot be used: ${reason}`,
    {
      field: "bridge",
      hint: `Set bridge to a name that is free, or make "${bridge}" fit: a bridge with exactly that address and length`,
      details: { bridge },
    },
  );
}
