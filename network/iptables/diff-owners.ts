import { isPodnetError, PodnetError } from "../../core/errors.ts";
import type { Change } from "../change.ts";
import type { NetworkFragment } from "../desired.ts";
import { diffFirewall, marksIn } from "./diff.ts";
import type { ObservedFirewall } from "./firewall.ts";
import { networkRules, sharedRules } from "./network-rules.ts";
import { tableNames } from "./rule.ts";
import { chooseVariant, type Variant, variants } from "./variant.ts";
import type { Memory } from "../memory.ts";
import { chainMark, networkMark, type Owner, parseOwner } from "../ownership.ts";

export interface FirewallContext {
  readonly configured: "auto" | Variant;
  readonly memory: Pick<Memory, "madeChain" | "chainVariant" | "chainNames">;
}

/**
 * The commits a network needs: its rules in the variant to be used, and none in the other, where an earlier
 * configuration may have left them. Pure. Throws `CHAIN_CONFLICT`, `FIREWALL_AMBIGUOUS`, `FIREWALL_FAILED`.
 */
export function diffNetworkFirewall(
  desired: NetworkFragment,
  observed: ObservedFirewall,
  context: FirewallContext,
): Change[] {
  const { memory } = context;
  const variant = variantToWrite(observed, context);
  refuseIncompatible(variant, observed);
  const { chain } = desired;
  const edits = diffFirewall({
    saved: observed.saved[variant],
    chain,
    rules: [...networkRules(desired), ...sharedRules(chain)],
    owners: new Set([networkMark(desired.key), chainMark(chain)]),
    remembered: (table, name) => memory.madeChain(variant, table, name),
  });
  const other: Variant = variant === "nft" ? "legacy" : "nft";
  const doomed = (owner: Owner): boolean => owner.kind === "network" && owner.key === desired.key;
  return [
    ...edits.map((edit): Change => ({ kind: "iptables", variant, chain, ...edit })),
    ...takeAway(other, chain, observed, context, doomed),
  ];
}

/**
 * The commits that take away the rules of doomed owners in both variants, and with the last network what networks
 * share. Pure; never touches a chain that is not ours.
 */
export function diffFirewallRemoval(
  chain: string,
  observed: ObservedFirewall,
  context: FirewallContext,
  doomed: (owner: Owner) => boolean,
): Change[] {
  return variants.flatMap((variant) => takeAway(variant, chain, observed, context, doomed));
}

const variantToWrite = (observed: ObservedFirewall, context: FirewallContext): Variant =>
  chooseVariant({ ...observed, ...context, remembered: context.memory.chainVariant() });

/** The variant that would be written now, or that it cannot be told. Pure. */
export function variantInUse(
  observed: ObservedFirewall,
  context: FirewallContext,
): Variant | "ambiguous" {
  try {
    return variantToWrite(observed, context);
  } catch (error) {
    if (isPodnetError(error, "FIREWALL_AMBIGUOUS")) return "ambiguous";
    throw error;
  }
}

function takeAway(
  variant: Variant,
  chain: string,
  observed: ObservedFirewall,
  context: FirewallContext,
  doomed: (owner: Owner) => boolean,
): Change[] {
  const saved = observed.saved[variant];
  const owners = [...marksIn(saved)].flatMap((mark) => {
    const owner = parseOwner(mark);
    return owner === undefined ? [] : [{ ...owner, mark }];
  });
  const deserted = !owners.some((owner) => owner.kind === "network" && !doomed(owner));
  // A chain of an earlier configuration is nobody's once no rule of a network that stays leads to it.
  const goes = (owner: Owner): boolean =>
    owner.kind === "chain" ? deserted || owner.key !== chain : doomed(owner);
  const oldChains = [
    ...owners.filter((owner) => owner.kind === "chain").map((owner) => owner.key),
    ...context.memory.chainNames(variant),
  ];
  const edits = diffFirewall({
    saved,
    chain,
    oldChains,
    rules: [],
    owners: new Set(owners.filter(goes).map((owner) => owner.mark)),
    remembered: (table, name) => context.memory.madeChain(variant, table, name),
  });
  return edits.map((edit) => ({ kind: "iptables", variant, chain, ...edit }));
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
