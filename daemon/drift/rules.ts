import type { PluggedFragment } from "../../network/model/desired.ts";
import type { Deviation } from "../../network/model/deviation.ts";
import type { HostNetwork } from "../../network/bridge/host-network.ts";
import type { Inspection } from "../../network/bridge/inspect.ts";
import { type LiveParts, type Part, partNow } from "./parts.ts";

/**
 * Inspects the rules of all these pods and containers together, and repairs those that `heal`
 * selects. Answers the results for those that were not as planned. Throws `FIREWALL_FAILED`,
 * `CANCELLED`.
 */
export async function inspectRules(
  parts: readonly Part[],
  live: LiveParts & { readonly network: Pick<HostNetwork, "inspectRules"> },
  heal: (part: Part, found: readonly Deviation[]) => boolean,
  signal: AbortSignal,
): Promise<readonly (readonly [Part, Inspection])[]> {
  if (parts.length === 0) return [];
  const partOf = new Map<PluggedFragment, Part>();
  const now = (): readonly PluggedFragment[] => {
    for (const part of parts) {
      if (part.kind === "join" || part.kind === "services") continue;
      const fragment = part.kind === "port" ? live.pods.rulesNow(part) : partNow(part, live);
      if (fragment !== undefined && fragment.kind !== "network") partOf.set(fragment, part);
    }
    return [...partOf.keys()];
  };
  const byFragment = await live.network.inspectRules(
    now,
    (fragment, found) => {
      const part = partOf.get(fragment);
      return part !== undefined && heal(part, found);
    },
    signal,
  );
  return [...byFragment].flatMap(([fragment, inspection]) => {
    const part = partOf.get(fragment);
    return part === undefined ? [] : [[part, inspection] as const];
  });
}
