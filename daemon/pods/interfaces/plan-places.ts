import { assertNever } from "../../../core/brand.ts";
import { PodnetError } from "../../../core/errors.ts";
import type { IfName } from "../../../core/names.ts";
import type { NamedLink } from "../../../network/model/observed.ts";
import { refuseCniChange } from "./plan-cni.ts";
import type { Place, Wish } from "./wish.ts";
import type { Snapshot } from "../plan/snapshot.ts";

/** Ethernet's. */
const usualMtu = 1500;

/**
 * Finds where an interface leads. Throws `NETWORK_NOT_FOUND`; `BRIDGE_CONFLICT` for a bridge that is none, is podnet's own
 * or does not filter VLANs where one is asked for; `TAP_CONFLICT` for a tap that cannot be used.
 */
export function findPlace({ wanted, field, was }: Wish, snapshot: Snapshot): Place {
  switch (wanted.kind) {
    case undefined:
      return findNetwork(wanted.network, wanted.port?.vlan, snapshot, field);
    case "bridge":
      return findBridge(wanted.bridge, wanted.port?.vlan, snapshot, field);
    case "tap":
      return findTap(wanted.tap, snapshot, field, was !== undefined);
    case "loopback":
      return { kind: "loopback" };
    case "cni":
      if (was !== undefined || field === "interface") refuseCniChange(`${field}.cni`);
      // What it will be the link decides, once it is there.
      return { kind: "cni", cni: wanted.cni, mtu: usualMtu, title: "a link of CNI plugins" };
    default:
      return assertNever(wanted);
  }
}

function findNetwork(
  name: string,
  vlan: number | undefined,
  snapshot: Snapshot,
  field: string,
): Place {
  const network = snapshot.networks.find((each) => each.name === name);
  if (network === undefined)
    throw new PodnetError("NETWORK_NOT_FOUND", `There is no network "${name}"`, {
      field: `${field}.network`,
      hint: `Networks are: ${snapshot.networks.map((each) => each.name).join(", ")}`,
    });
  const { bridge, mtu, vlanFiltering } = network;
  if (vlan !== undefined && !vlanFiltering)
    throw noVlans(bridge, field, `turn it on: podnet network update ${name} --vlan-filtering`);
  return { kind: "network", network, bridge, mtu, title: `network "${name}"` };
}

function findBridge(
  bridge: IfName,
  vlan: number | undefined,
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
  return { kind: "bridge", bridge, mtu: link.mtu, title: `bridge "${bridge}"` };
}

const bridgeConflict = (field: string, bridge: string, what: string, hint: string): PodnetError =>
  new PodnetError("BRIDGE_CONFLICT", `"${bridge}" ${what}`, {
    field: `${field}.bridge`,
    hint,
    details: { bridge },
  });

const noVlans = (bridge: string, field: string, how: string): PodnetError =>
  new PodnetError("BRIDGE_CONFLICT", `Bridge "${bridge}" does not filter VLANs`, {
    field: `${field}.port.vlan`,
    hint: `Leave the VLAN out, or ${how}`,
    details: { bridge },
  });

function findTap(
  tap: IfName,
  { links, tapHolders }: Snapshot,
  field: string,
  inUse: boolean,
): Place {
  const link = links?.[tap];
  // Whether another pod has it is looked at with its name.
  const fault = tapFault(link, inUse || tapHolders?.[tap] !== undefined);
  if (link === undefined || fault !== undefined)
    throw new PodnetError("TAP_CONFLICT", `Tap "${tap}" ${fault ?? ""}`, {
      field: `${field}.tap`,
      hint: "Make a persistent tap that nothing else has open: ip tuntap add dev NAME mode tap",
      details: { tap },
    });
  return { kind: "tap", tap, mtu: link.mtu, title: `tap "${tap}"` };
}

/** What makes a link no tap that can be used and kept. */
function tapFault(link: NamedLink | undefined, inUse: boolean): string | undefined {
  if (link === undefined) return "does not exist";
  if (link.kind !== "tap" || link.ours) return "is no tap of somebody else";
  if (link.persistent !== true) return "is not persistent: it would go with its user";
  if (link.multiQueue === true) return "has several queues, and a NIC of podnet's has one";
  if (link.carrier && !inUse) return "is in use by somebody else";
  return undefined;
}
