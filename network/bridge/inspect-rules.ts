import { isPodnetError } from "../../core/errors.ts";
import { commentOf } from "../firewall/iptables/rule.ts";
import { splitWords } from "../firewall/iptables/save-format.ts";
import { applyAll } from "./apply.ts";
import type { Change } from "../model/change.ts";
import { comparePoliced } from "./compare-policed.ts";
import { compareHairpins, compareRules, type View } from "./compare.ts";
import type { PluggedFragment } from "../model/desired.ts";
import { type Deviation, deviations } from "../model/deviation.ts";
import { inspectBy, type Inspection } from "./inspect.ts";
import { elementId } from "../model/nftables-sets.ts";
import { publishedMark } from "../model/ownership.ts";

/** Whether to repair a pod's deviations. */
export type HealRules = (fragment: PluggedFragment, found: readonly Deviation[]) => boolean;

/**
 * Published ports whose rules are written in one commit; a pod with more has a commit of its own.
 */
const portsTogether = 100;

/**
 * Inspects the rules of all these pods by one listing, and repairs the deviations if requested:
 * many pods with one commit. Returns the results for pods with deviations. Throws `FIREWALL_FAILED`
 * if rules cannot be read, and `CANCELLED`.
 */
export async function inspectRules(
  view: View,
  fragments: readonly PluggedFragment[],
  heal: HealRules,
  signal: AbortSignal,
): Promise<ReadonlyMap<PluggedFragment, Inspection>> {
  if (fragments.length === 0) return new Map();
  const deviating = await deviatingOnce(view, fragments, signal);
  const found = new Map<PluggedFragment, Inspection>();
  for (const some of inParts(deviating))
    for (const [fragment, inspection] of await inspectSome(view, some, heal, signal))
      found.set(fragment, inspection);
  // Hairpin mode also depends on settings that no event reports.
  for (const fragment of (await compareHairpins(view, fragments)).keys())
    if (!found.has(fragment)) found.set(fragment, await inspectOne(view, fragment, heal, signal));
  return found;
}

/** Another program may write the firewall while it is read: then it is read once more. */
async function deviatingOnce(
  { firewall }: View,
  fragments: readonly PluggedFragment[],
  signal: AbortSignal,
): Promise<readonly PluggedFragment[]> {
  try {
    return await firewall.deviating(fragments, signal);
  } catch (error) {
    if (!isPodnetError(error, "FIREWALL_FAILED")) throw error;
    return await firewall.deviating(fragments, signal);
  }
}

/** Groups of consecutive pods, each with at most as many published ports as are written at once. */
function inParts(fragments: readonly PluggedFragment[]): PluggedFragment[][] {
  const parts: PluggedFragment[][] = [];
  let ports = Infinity;
  for (const fragment of fragments) {
    const more = (fragment.published?.length ?? 0) + (fragment.translated?.length ?? 0);
    if (ports + more > portsTogether) {
      parts.push([]);
      ports = 0;
    }
    parts.at(-1)?.push(fragment);
    ports += more;
  }
  return parts;
}

async function inspectSome(
  view: View,
  some: readonly PluggedFragment[],
  heal: HealRules,
  signal: AbortSignal,
): Promise<ReadonlyMap<PluggedFragment, Inspection>> {
  try {
    if (some.length > 1) return await inspectTogether(view, some, heal, signal);
  } catch (error) {
    if (isPodnetError(error, "CANCELLED", "DEADLINE_EXCEEDED")) throw error;
    // One of them is in the way of the others: each for itself says why.
  }
  const found = new Map<PluggedFragment, Inspection>();
  for (const fragment of some) found.set(fragment, await inspectOne(view, fragment, heal, signal));
  return found;
}

const inspectOne = (
  view: View,
  fragment: PluggedFragment,
  heal: HealRules,
  signal: AbortSignal,
): Promise<Inspection> =>
  // A container's links are looked at in its own turn: here they might be on their way out, and
  // would be brought back.
  inspectBy(
    compareRules(view, fragment),
    view,
    fragment.ports,
    (found) => heal(fragment, found),
    signal,
  );

async function inspectTogether(
  view: View,
  some: readonly PluggedFragment[],
  heal: HealRules,
  signal: AbortSignal,
): Promise<ReadonlyMap<PluggedFragment, Inspection>> {
  const changes = await compareTogether(view, some, signal);
  const inspections = new Map<PluggedFragment, Inspection>();
  const healing: PluggedFragment[] = [];
  for (const fragment of some) {
    const marks = [publishedMark(fragment), ...fragment.ports.map(({ alias }) => alias)];
    const found = changes.flatMap((change) =>
      deviations(partOf(marks, change), { links: [], addresses: [] }),
    );
    if (found.length === 0) continue;
    const healed = heal(fragment, found);
    if (healed) healing.push(fragment);
    inspections.set(fragment, { found, healed, error: undefined });
  }
  if (healing.length === 0) return inspections;
  const all = healing.length === some.length;
  const own = all ? changes : await compareTogether(view, healing, signal);
  await applyAll(own, view, signal, { done: [] });
  return inspections;
}

/** The policies, the guard's elements and the rules of several pods, one change for each table. */
async function compareTogether(
  { firewall }: View,
  some: readonly PluggedFragment[],
  signal: AbortSignal,
): Promise<Change[]> {
  const ruled = some.filter(({ published }) => published !== undefined);
  return [
    ...(await comparePoliced(firewall, some, signal)),
    ...(ruled.length === 0 ? [] : await firewall.comparePods(ruled, signal)),
  ];
}

/** The part of a change to rules that concerns the owner of some marks. Pure. */
function partOf(marks: readonly string[], change: Change): Change {
  const isTheirs = (mark: string | undefined): boolean =>
    mark !== undefined && marks.includes(mark);
  if (change.kind === "iptables") {
    const lines = change.lines.filter((line) => isTheirs(commentOf(splitWords(line))));
    return { ...change, lines };
  }
  if (change.kind !== "nftables") return change;
  const add = change.add.filter(({ owner }) => isTheirs(owner));
  const ids = new Set(add.map(elementId));
  const remove = change.remove.filter(
    (element) => isTheirs(element.owner) || ids.has(elementId(element)),
  );
  return { ...change, add, remove };
}
