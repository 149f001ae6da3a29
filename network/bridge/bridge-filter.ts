import type { IfName } from "../../core/names.ts";
import type { PolicyOf } from "../firewall/policed.ts";
import type { Change } from "../model/change.ts";
import type { PluggedFragment } from "../model/desired.ts";
import type { ObservedLink, ObservedPod } from "../model/observed.ts";
import { parseOwner } from "../model/ownership.ts";

/**
 * Has frames between the ports of a bridge pass the host's rules where a pod on it has a policy:
 * the kernel asks the bridge about it, and not only the sysctl of all bridges (br_nf_pre_routing,
 * Linux 4.16), which podnet never writes. Bridges of others are left as they are. Pure.
 */
export function diffBridgeFilter(
  fragments: readonly PluggedFragment[],
  policyOf: PolicyOf,
  observed: ObservedPod,
): Change[] {
  const bridges = new Set(
    fragments
      .filter((fragment) => policyOf(fragment) !== undefined)
      .flatMap(({ ports }) => ports.map(({ bridge }) => bridge)),
  );
  return [...bridges].flatMap((name) => filterBridge(name, observed.get(name)));
}

const filterBridge = (name: IfName, bridge: ObservedLink | undefined): Change[] =>
  bridge?.nfCall === false && parseOwner(bridge.alias)?.kind === "network"
    ? [{ kind: "set-link", name, set: { nfCall: true } }]
    : [];

/** The links as they will be with these changes. Pure. */
export function withBridgeFilter(observed: ObservedPod, changes: readonly Change[]): ObservedPod {
  const links = new Map(observed);
  for (const change of changes) {
    const link = change.kind === "set-link" ? links.get(change.name) : undefined;
    if (link !== undefined) links.set(link.name, { ...link, nfCall: true });
  }
  return links;
}
