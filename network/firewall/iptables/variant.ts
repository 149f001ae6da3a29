import { parseOwner } from "../../model/ownership.ts";
import { marksIn } from "./diff.ts";
import { commentOf } from "./rule.ts";
import type { SavedTables } from "./save-format.ts";
import { type Variant, variants } from "../../model/rules.ts";

export interface VariantEvidence {
  /** `iptables_variant` of the configuration. */
  readonly configured: "auto" | Variant;
  /** The variant of the plain command `iptables` on this host. */
  readonly systemDefault: Variant;
  /**
   * The variant in which we recorded making chains: after `iptables -F` there is no other evidence.
   */
  readonly remembered?: Variant | undefined;
  readonly saved: Readonly<Record<Variant, SavedTables>>;
}

/**
 * The variant to write: the configured one; else the one that holds our rules; else the one that
 * holds any rules; else, and when both hold foreign rules, the system's default: it is what people
 * see who run `iptables`. A DROP in the other variant holds all the same, which `podnet doctor`
 * reports. Pure.
 */
export function chooseVariant(evidence: VariantEvidence): Variant {
  if (evidence.configured !== "auto") return evidence.configured;
  const ours = variants.filter((variant) => marksIn(evidence.saved[variant]).size > 0);
  if (ours.length === 1) return ours[0] as Variant;
  if (evidence.remembered !== undefined) return evidence.remembered;
  const used = variants.filter((variant) => inUse(evidence.saved[variant]));
  return used.length === 1 ? (used[0] as Variant) : evidence.systemDefault;
}

/**
 * Whether another program uses it: it has a rule, a chain, or a policy other than ACCEPT. Listing
 * alone creates empty tables.
 */
function inUse(saved: SavedTables): boolean {
  return [...saved.values()].some((table) => {
    const foreign = table.rules.filter((rule) => parseOwner(commentOf(rule.args)) === undefined);
    const policies = [...table.chains.values()].some(
      (policy) => policy !== "ACCEPT" && policy !== "-",
    );
    const marked = table.rules.length > foreign.length;
    const chains = [...table.chains.values()].includes("-") && !marked;
    return foreign.length > 0 || policies || chains;
  });
}
