import type { Decisions } from "../../../policy/compile.ts";
import type { PluggedFragment } from "../../model/desired.ts";
import { type Element, policedPortSets, type SetName } from "../../model/nftables-sets.ts";
import type { TableModel } from "./base.ts";

/**
 * What policies cannot decide about between the ports of a bridge is dropped, at the ports of pods
 * that have a policy:
 * - Tagged frames: the host's rules do not see what is in them, and receivers pass over a tag of
 *   VLAN 0.
 * - IPv6 from link-local addresses: policies know pods by the addresses that podnet gave. Neighbor
 *   and router discovery passes; the guard has looked at it.
 */
export const policedPortsTable: TableModel = {
  name: "bridge podnet_policy",
  sets: Object.keys(policedPortSets) as SetName[],
  chains: {
    // Before a bridge that filters VLANs takes the tag off.
    arriving: {
      hook: { type: "filter", hook: "prerouting", priority: -290 },
      rules: ["vlan id 0-4095 iifname @policed drop"],
    },
    between: {
      hook: { type: "filter", hook: "forward", priority: -200 },
      rules: [
        "vlan id 0-4095 oifname @policed drop",
        "meta protocol ip6 ip6 saddr fe80::/10 icmpv6 type 133-137 return",
        "ip6 saddr fe80::/10 iifname @policed drop",
        "ip6 saddr fe80::/10 oifname @policed drop",
      ],
    },
  },
  optional: { does: "policies between pods on one network" },
};

/** The elements that name a pod's ports there. Pure. */
export const policedPortElements = (
  pod: PluggedFragment,
  decisions: Decisions | undefined,
): Element[] =>
  decisions === undefined
    ? []
    : pod.ports.map(({ tap, alias: owner }) => ({ set: "policed", key: `"${tap}"`, owner }));
