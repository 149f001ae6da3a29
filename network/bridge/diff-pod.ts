import { ipOf, type Mac } from "../../core/address.ts";
import { PodnetError } from "../../core/errors.ts";
import type { Change, LinkSettings, PortSettings } from "../model/change.ts";
import { type PluggedFragment, type PortDesired, portGroup } from "../model/desired.ts";
import type { ObservedLink, ObservedPod } from "../model/observed.ts";
import { diffRates } from "../rates/diff-rates.ts";

/**
 * The changes that make a pod's taps ports. Pure, and without the firewall: a network's rules apply
 * to all its pods. The kernel reports a full bridge; the planner calls `checkPortRoom` long before.
 * Throws `BRIDGE_CONFLICT` if a bridge is missing, `NETLINK_FAILED` if a tap is, `NAME_IN_USE` if
 * the tap's name is taken.
 */
export function diffPod(desired: PluggedFragment, observed: ObservedPod): Change[] {
  return desired.ports.flatMap((port) => {
    const bridge = observed.get(port.bridge);
    if (bridge?.kind !== "bridge") throw missingBridge(port);
    const tap = observed.get(port.tap);
    if (tap === undefined) throw missingTap(port);
    if (tap.alias !== undefined && tap.alias !== port.alias) throw taken(port, tap.alias);
    // Limits before traffic.
    return [...diffRates(port, tap, observed), ...diffPort(port, tap, bridge)];
  });
}

function diffPort(port: PortDesired, tap: ObservedLink, bridge: ObservedLink): Change[] {
  const group = portGroup(port.bridge);
  const set: LinkSettings = {
    ...(tap.alias === port.alias ? {} : { alias: port.alias }),
    ...(tap.group === group ? {} : { group }),
    ...(tap.mtu === port.mtu ? {} : { mtu: port.mtu }),
    ...(port.foreign !== true || tap.mac === highMac(port) ? {} : { mac: highMac(port) }),
  };
  const changes: Change[] = [];
  const name = port.tap;
  if (Object.keys(set).length > 0) changes.push({ kind: "set-link", name, set });
  if (tap.master !== bridge.index) {
    // An earlier holder of these addresses had another MAC, which may still be in the host's
    // neighbour table.
    changes.push(...forgetNeighbours([port], bridge.index));
    const { bridge: onto, isolated, learning, vlan } = port;
    const settings = {
      master: bridge.index,
      isolated,
      ...(learning === undefined ? {} : { learning }),
      ...(vlan === undefined ? {} : { vlan }),
    };
    return [...changes, { kind: "attach-port", link: name, bridge: onto, ...settings }];
  }
  const others = portChanges(port, tap);
  if (Object.keys(others).length > 0) changes.push({ kind: "set-port", link: name, set: others });
  if (!tap.up) changes.push({ kind: "set-link", name, set: { up: true } });
  return changes;
}

/**
 * A bridge without a MAC of its own takes the lowest of its ports' (br_stp_recalculate_bridge_id).
 * On a foreign bridge, the tap's MAC is therefore higher than those of NICs. It is never the
 * guest's own, whose frames would then be the bridge's.
 */
const highMac = ({ guestMac }: PortDesired): Mac =>
  `${guestMac.startsWith("fe:") ? "fa" : "fe"}${guestMac.slice(2)}` as Mac;

/** Settings of a port that are not as they should be. */
const portChanges = (port: PortDesired, tap: ObservedLink): PortSettings => ({
  ...(tap.isolated === port.isolated ? {} : { isolated: port.isolated }),
  ...(port.learning === undefined || tap.learning === port.learning
    ? {}
    : { learning: port.learning }),
  ...(port.vlan === undefined || tap.vlan === port.vlan ? {} : { vlan: port.vlan }),
});

/**
 * The changes that delete our links: first off their bridges, so that traffic stops before anything
 * slow starts. Pure.
 */
export function endLinks(links: readonly ObservedLink[]): Change[] {
  if (links.length === 0) return [];
  return [...detachLinks(links), { kind: "delete-links", links: links.map((link) => link.name) }];
}

export const detachLinks = (links: readonly ObservedLink[]): Change[] =>
  links
    .filter((link) => link.master !== 0)
    .map((link) => ({ kind: "detach-port", link: link.name }));

/**
 * The host's memory of where the ports' addresses were; of the ports of one bridge, whose index is
 * known, with that.
 */
export const forgetNeighbours = (ports: readonly PortDesired[], bridge?: number): Change[] =>
  ports.flatMap((port) =>
    port.guestAddresses.map((prefix) => ({
      kind: "forget-neighbour",
      link: port.bridge,
      ip: ipOf(prefix),
      ...(bridge === undefined ? {} : { index: bridge }),
    })),
  );

const missingBridge = (port: PortDesired): PodnetError =>
  new PodnetError(
    "BRIDGE_CONFLICT",
    `Bridge "${port.bridge}" for tap "${port.tap}" does not exist`,
    {
      hint:
        port.foreign === true
          ? "It is foreign: its owner has to make it again"
          : "Its network is repaired at the next check; try again",
      details: { bridge: port.bridge, tap: port.tap },
    },
  );

const missingTap = (port: PortDesired): PodnetError =>
  new PodnetError("NETLINK_FAILED", `Tap "${port.tap}" does not exist`, {
    hint: "It ends with its virtual machine; start the pod again",
    details: { tap: port.tap, errno: "ENODEV" },
  });

const taken = (port: PortDesired, alias: string): PodnetError =>
  new PodnetError(
    "NAME_IN_USE",
    `Link "${port.tap}" exists and is "${alias}", not "${port.alias}"`,
    {
      hint: "Delete or rename that link, and try again",
      details: { tap: port.tap, alias },
    },
  );
