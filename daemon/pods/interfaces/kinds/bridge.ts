import type { InterfaceSpec } from "../../../../api/pod-spec.ts";
import { PodnetError } from "../../../../core/errors.ts";
import type { IfName } from "../../../../core/names.ts";
import type { Snapshot } from "../../plan/snapshot.ts";
import { heldAddresses } from "./held-addresses.ts";
import { type InterfaceText, ownTap } from "./interface-text.ts";
import { noVlans } from "./no-vlans.ts";
import type { Place } from "./place.ts";

/**
 * Finds a bridge of another program. Throws `BRIDGE_CONFLICT` for a link that is no bridge, is
 * podnet's own, or does not filter VLANs where the spec asks for one.
 */
export function bridgePlace(
  bridge: IfName,
  { port: { vlan } = {} }: Pick<InterfaceSpec, "port">,
  { networks, links }: Snapshot,
  field: string,
): Place {
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
  if (vlan !== undefined && link.vlanFiltering !== true)
    throw noVlans(
      bridge,
      field,
      `have its owner turn it on: ip link set ${bridge} type bridge vlan_filtering 1`,
    );
  const { mtu } = link;
  return {
    mtu,
    title: `bridge "${bridge}"`,
    hasNic: true,
    keepsTap: false,
    addresses(wish, choice) {
      const addresses = heldAddresses(wish);
      choice.refuseHeld(addresses, wish, bridge);
      return addresses;
    },
    gateways: () => [],
    planned: ({ wanted: { port }, was }) => ({
      bridge,
      bridgeMtu: was?.bridgeMtu ?? mtu,
      ...(port === undefined ? {} : { port }),
    }),
  };
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

export const bridgeText: InterfaceText = {
  whither: ({ bridge }) => `bridge ${bridge ?? ""}, which is foreign`,
  tap: ownTap,
};
