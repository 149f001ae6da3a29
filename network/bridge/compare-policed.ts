import type { PolicedDriver } from "../firewall/policed.ts";
import type { Change } from "../model/change.ts";
import type { PluggedFragment } from "../model/desired.ts";
import { type Element, elementId } from "../model/nftables-sets.ts";
import { isEmpty } from "../model/rules.ts";

/** The changes that give these pods and containers their policies, and let their ports send. */
export async function comparePoliced(
  firewall: Pick<PolicedDriver, "comparePolicies" | "comparePorts">,
  fragments: readonly PluggedFragment[],
  signal: AbortSignal,
): Promise<Change[]> {
  const policies = await firewall.comparePolicies(fragments, signal);
  return aroundGuard(policies, await firewall.comparePorts(fragments, signal));
}

/**
 * A port may send by an address only while a policy decides about that address. The two stand in
 * tables of two families, which one transaction cannot change: policies gain addresses before the
 * guard does, and lose them after it. Pure.
 */
export function aroundGuard(policies: readonly Change[], guard: readonly Change[]): Change[] {
  if (guard.length === 0) return [...policies];
  const parts = policies.map(divided);
  return [...parts.flatMap(({ before }) => before), ...guard, ...parts.flatMap((it) => it.after)];
}

/** What of a change comes before the guard's, and what after. */
function divided(change: Change): Record<"before" | "after", Change[]> {
  if (change.kind !== "nftables" || change.base === "delete")
    return { before: [], after: [change] };
  if (change.base === "remake") return { before: [change], after: [] };
  const { drop, ...edit } = change;
  const added = new Set(edit.add.map(elementId));
  const isReplaced = (element: Element): boolean => added.has(elementId(element));
  const before = { ...edit, remove: edit.remove.filter(isReplaced) };
  const { kind, table } = edit;
  const after = {
    kind,
    ...(table === undefined ? {} : { table }),
    base: "keep" as const,
    remove: edit.remove.filter((element) => !isReplaced(element)),
    add: [],
    ...(drop === undefined ? {} : { drop }),
  };
  // (Without an element that goes no chain loses its last one.)
  if (after.remove.length === 0) return { before: [change], after: [] };
  return { before: isEmpty(before) ? [] : [before], after: [after] };
}
