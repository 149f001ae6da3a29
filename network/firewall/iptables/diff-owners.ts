import { PodnetError } from "../../../core/errors.ts";
import type { ChangeOf } from "../../model/change.ts";
import { hasFamily, type NetworkFragment, type PluggedFragment } from "../../model/desired.ts";
import type { ChainMemory } from "../../kernel/memory.ts";
import type { OverlayRuled } from "../../model/overlay.ts";
import {
  chainMark,
  networkMark,
  type Owner,
  overlayMark,
  parseOwner,
  publishedMark,
} from "../../model/ownership.ts";
import { diffFirewall, marksIn } from "./diff.ts";
import type { ObservedFirewall } from "./firewall.ts";
import { networkRules, sharedRules } from "./network-rules.ts";
import { overlayChain, overlayRules } from "./overlay-rules.ts";
import { publishedRules } from "./published-rules.ts";
import type { Rule } from "./rule.ts";
import { tableNames, type Variant, variants } from "../../model/rules.ts";
import { chooseVariant } from "./variant.ts";

/** A commit of one table. */
type Commit = ChangeOf<"iptables">;

export interface FirewallContext {
  readonly configured: "auto" | Variant;
  /** The recorded state of the address family that is compared. */
  readonly memory: Pick<ChainMemory, "made" | "variant" | "names">;
}

/**
 * The commits that give a network its rules in the variant in use, in one address family, and
 * remove them from the other variant, where an earlier configuration may have left them. Pure.
 * Throws `CHAIN_CONFLICT`, `FIREWALL_FAILED`.
 */
export function diffNetworkFirewall(
  desired: NetworkFragment,
  observed: ObservedFirewall,
  context: FirewallContext,
): Commit[] {
  const { chain } = desired;
  const { family } = observed;
  const own = (owner: Owner): boolean => owner.kind === "network" && owner.key === desired.key;
  if (!hasFamily(desired, family)) return diffFirewallRemoval(chain, observed, context, own);
  const rules = [...networkRules(desired, family), ...sharedRules(chain, family)];
  const marks = [networkMark(desired.key), chainMark(chain)];
  return diffOwner({ chain, rules, marks, own }, observed, context);
}

/**
 * The commits that make the published ports of pods reachable in one address family. Pure. Throws
 * as `diffNetworkFirewall`.
 */
export function diffPodsFirewall(
  desired: readonly PluggedFragment[],
  chain: string,
  observed: ObservedFirewall,
  context: FirewallContext,
): Commit[] {
  const rules = desired.flatMap((pod) => publishedRules(pod, chain, observed.family));
  const own = ownersOf(desired);
  if (rules.length === 0) return diffFirewallRemoval(chain, observed, context, own);
  return diffOwner({ chain, rules, marks: desired.map(publishedMark), own }, observed, context);
}

/** Whether an owner is one of these pods. */
export function ownersOf(pods: readonly PluggedFragment[]): (owner: Owner) => boolean {
  const known = new Set(pods.map(({ kind, key }) => `${kind} ${key}`));
  return ({ kind, key }) => known.has(`${kind} ${key}`);
}

/**
 * The commits that give an overlay its rules in one family. Pure. Throws as `diffNetworkFirewall`.
 */
export function diffOverlayFirewall(
  desired: OverlayRuled,
  chain: string,
  observed: ObservedFirewall,
  context: FirewallContext,
): Commit[] {
  const rules = overlayRules(desired, observed.family);
  const own = (owner: Owner): boolean => owner.kind === "overlay" && owner.key === desired.name;
  if (rules.length === 0) return diffFirewallRemoval(chain, observed, context, own);
  const marks = [overlayMark(desired.name)];
  const into = overlayChain(desired.name);
  return diffOwner({ chain, into, rules, marks, own }, observed, context);
}

interface OwnersWanted {
  readonly chain: string;
  /** The chain of ours that contains the rules; by default the chain of the rule itself. */
  readonly into?: string;
  readonly rules: readonly Rule[];
  /** The marks of the rules' owners. */
  readonly marks: readonly string[];
  /** Whether an owner's rules have to be absent from the other variant. */
  readonly own: (owner: Owner) => boolean;
}

function diffOwner(
  { chain, into = chain, rules, marks, own }: OwnersWanted,
  observed: ObservedFirewall,
  context: FirewallContext,
): Commit[] {
  const { memory } = context;
  const { family } = observed;
  const variant = variantToWrite(observed, context);
  refuseIncompatible(variant, observed);
  const edits = diffFirewall({
    family,
    saved: observed.saved[variant],
    chain: into,
    rules,
    owners: new Set(marks),
    remembered: (table, name) => memory.made(variant, table, name),
  });
  const other: Variant = variant === "nft" ? "legacy" : "nft";
  return [
    ...edits.map((edit): Commit => ({ kind: "iptables", family, variant, chain: into, ...edit })),
    ...takeAway(other, chain, observed, context, own),
  ];
}

/**
 * The commits that remove the rules of these owners in both variants, and with the last network the
 * rules that networks share. Pure. Never changes a chain that is not ours.
 */
export function diffFirewallRemoval(
  chain: string,
  observed: ObservedFirewall,
  context: FirewallContext,
  removed: (owner: Owner) => boolean,
): Commit[] {
  return variants.flatMap((variant) => takeAway(variant, chain, observed, context, removed));
}

export const variantToWrite = (observed: ObservedFirewall, context: FirewallContext): Variant =>
  chooseVariant({ ...observed, ...context, remembered: context.memory.variant() });

function takeAway(
  variant: Variant,
  chain: string,
  observed: ObservedFirewall,
  context: FirewallContext,
  removed: (owner: Owner) => boolean,
): Commit[] {
  const { family } = observed;
  const saved = observed.saved[variant];
  const owners = [...marksIn(saved)].flatMap((mark) => {
    const owner = parseOwner(mark);
    return owner === undefined ? [] : [{ ...owner, mark }];
  });
  const deserted = !owners.some((owner) => owner.kind === "network" && !removed(owner));
  // A chain of an earlier configuration is unused once no rule of a remaining network jumps to it.
  const goes = (owner: Owner): boolean =>
    owner.kind === "chain" ? deserted || owner.key !== chain : removed(owner);
  const oldChains = [
    ...owners.flatMap(({ kind, key }) =>
      kind === "chain" ? [key] : kind === "overlay" ? [overlayChain(key)] : [],
    ),
    ...context.memory.names(variant),
  ];
  const edits = diffFirewall({
    family,
    saved,
    chain,
    oldChains,
    rules: [],
    owners: new Set(owners.filter(goes).map((owner) => owner.mark)),
    remembered: (table, name) => context.memory.made(variant, table, name),
  });
  return edits.map((edit) => ({ kind: "iptables", family, variant, chain, ...edit }));
}

function refuseIncompatible(variant: Variant, observed: ObservedFirewall): void {
  const table = tableNames.find((name) => observed.incompatible.includes(name));
  if (variant !== "nft" || table === undefined) return;
  throw new PodnetError(
    "FIREWALL_FAILED",
    `Table "${table}" holds rules made with nft that iptables cannot show`,
    {
      field: "iptables_variant",
      hint: 'Move those rules to a table of their own, or set iptables_variant = "legacy"',
      details: { table, variant },
    },
  );
}
