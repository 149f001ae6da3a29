import type { InterfaceSpec } from "../../../../api/pod-spec.ts";
import { type IpPrefix, ipOf } from "../../../../core/address.ts";
import { PodnetError } from "../../../../core/errors.ts";
import type { IfName } from "../../../../core/names.ts";
import { staying } from "../../store/pod-plan.ts";
import { addressHeld, ownOther } from "./address-held.ts";
import { heldAddresses } from "./held-addresses.ts";
import { ownTap, type PlannedKind } from "./planned-kind.ts";
import type { InterfaceKind, Planning } from "./kind.ts";
import { noVlans } from "./no-vlans.ts";

/**
 * Finds a bridge of another program. Throws `BRIDGE_CONFLICT` for a link that is no bridge, is
 * podnet's own, or does not filter VLANs where the spec asks for one; `ADDRESS_IN_USE` for an
 * address of another pod there.
 */
export function bridgeKind(
  bridge: IfName,
  request: InterfaceSpec,
  planning: Planning,
): InterfaceKind {
  const { port } = request;
  const { field, was } = planning;
  const { networks, links } = planning.snapshot;
  const ours = networks.find((each) => each.bridge === bridge);
  const link = links?.[bridge];
  if (ours !== undefined || link?.ours === true)
    throw bridgeConflict(
      field,
      bridge,
      "is podnet's own",
      `Name its network${ours === undefined ? "" : `: ${ours.name}`}`,
    );
  if (link === undefined)
    throw bridgeConflict(
      field,
      bridge,
      "does not exist",
      "podnet makes no bridges of others: make it first",
    );
  if (link.kind !== "bridge")
    throw bridgeConflict(field, bridge, "is no bridge", "Name a bridge: ip link show type bridge");
  if (port?.vlan !== undefined && link.vlanFiltering !== true)
    throw noVlans(
      bridge,
      field,
      `have its owner turn it on: ip link set ${bridge} type bridge vlan_filtering 1`,
    );
  const { mtu } = link;
  const addresses = heldAddresses(request, planning);
  refuseHeld(addresses, bridge, port?.vlan, planning);
  return {
    title: `bridge "${bridge}"`,
    mtu,
    hasNic: true,
    part: {
      bridge,
      bridgeMtu: was?.bridgeMtu ?? mtu,
      ...(port === undefined ? {} : { port }),
      addresses,
    },
  };
}

/**
 * Refuses an address that another interface has on the bridge and VLAN. Which addresses other
 * programs gave out there is for the bridge's owner to know.
 */
function refuseHeld(
  addresses: readonly IpPrefix[],
  bridge: IfName,
  vlan: number | undefined,
  { field, was, others, snapshot: { onBridges = [], podId } }: Planning,
): void {
  const own = staying(others)
    .filter((each) => each.bridge === bridge && each.port?.vlan === vlan)
    .flatMap((each) => each.addresses.map(ipOf));
  for (const address of addresses) {
    if (was?.addresses.includes(address) === true) continue;
    const ip = ipOf(address);
    const held = onBridges.find(
      (each) =>
        each.bridge === bridge &&
        each.vlan === vlan &&
        ipOf(each.address) === ip &&
        each.tap !== was?.nic?.tap,
    );
    if (held !== undefined && held.podId !== podId)
      throw addressHeld(ip, `pod "${held.podName}"`, `${field}.address`);
    if (held !== undefined || own.includes(ip)) throw addressHeld(ip, ownOther, `${field}.address`);
    own.push(ip);
  }
}

const bridgeConflict = (field: string, bridge: string, what: string, hint: string): PodnetError =>
  new PodnetError("BRIDGE_CONFLICT", `"${bridge}" ${what}`, {
    field: `${field}.bridge`,
    hint,
    details: { bridge },
  });

/** The foreign bridge that an interface asks for; undefined for other kinds. */
export const bridgeAsked = (each: InterfaceSpec): IfName | undefined =>
  each.kind === "bridge" ? each.bridge : undefined;

export const bridgePlanned: PlannedKind = {
  whither: ({ bridge }) => `bridge ${bridge ?? ""}, which is foreign`,
  tap: ownTap,
};
