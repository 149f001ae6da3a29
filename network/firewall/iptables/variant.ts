import { PodnetError } from "../../../core/errors.ts";
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
 * holds any rules; else the system's default. Pure. Throws `FIREWALL_AMBIGUOUS` if both hold
 * foreign rules: a DROP in one defeats an ACCEPT in the other, so rules in either variant could be
 * without effect.
 */
export function chooseVariant(evidence: VariantEvidence): Variant {
  if (evidence.configured !== "auto") return evidence.configured;
  const ours = variants.filter((variant) => marksIn(evidence.saved[variant]).size > 0);
  if (ours.length === 1) return ours[0] as Variant;
  if (evidence.remembered !== undefined) return evidence.remembered;
  const used = variants.filter((variant) => inUse(evidence.saved[variant]));
  if (used.length === 0) return evidence.systemDefault;
  if (used.length === 1) return used[0] as Variant;
  throw new PodnetError(
    "FIREWALL_AMBIGUOUS",
    "Both iptables-nft and iptables-legacy hold rules on this host",
    {
      field: "iptables_variant",
      hint: 'Set iptables_variant to "nft" or "legacy", whichever the host\'s firewall uses',
    },
  );
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
