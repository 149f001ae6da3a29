import type { Change } from "../model/change.ts";
import type { Fragment, NetworkFragment, PluggedFragment } from "../model/desired.ts";
import type { Variant } from "../model/rules.ts";
import type { OverlayRuled } from "../model/overlay.ts";
import type { SenderChange } from "../model/overlay-senders.ts";
import type { Owner } from "../model/ownership.ts";

/**
 * Who writes the host's rules. It looks and answers with changes, which `apply.ts` does; it changes
 * nothing itself. Every method throws `FIREWALL_FAILED` when the rules cannot be read, and
 * `CANCELLED`.
 */
export interface FirewallDriver {
  /**
   * The changes that give a network its rules, and take away those that an earlier configuration
   * gave it; all of them when it is to have none. Throws `CHAIN_CONFLICT`, `FIREWALL_AMBIGUOUS`.
   */
  compareNetwork(fragment: NetworkFragment, signal: AbortSignal): Promise<Change[]>;
  /**
   * The changes that let what a pod has published be reached, all of it in one commit a table. Not
   * asked about a pod that has never published anything. Throws as `compareNetwork`.
   */
  comparePod(fragment: PluggedFragment, signal: AbortSignal): Promise<Change[]>;
  /**
   * The pods whose rules are not as wanted, or cannot be: by one look at all rules, whose cost
   * hardly grows with the pods.
   */
  deviating(
    fragments: readonly PluggedFragment[],
    signal: AbortSignal,
  ): Promise<readonly PluggedFragment[]>;
  /**
   * The changes that give all of these pods their rules, in one commit a table. Throws as
   * `comparePod`, for all of them.
   */
  comparePods(fragments: readonly PluggedFragment[], signal: AbortSignal): Promise<Change[]>;
  /**
   * The changes that give an overlay its rules, and take away those of a former network, subnet or
   * switch. Throws as `compareNetwork`.
   */
  compareOverlay(overlay: OverlayRuled, signal: AbortSignal): Promise<Change[]>;
  /**
   * The changes that let other hosts in by their own addresses, or no longer: of these hosts alone.
   * Throws as `compareNetwork`.
   */
  compareSenders(change: SenderChange, signal: AbortSignal): Promise<Change[]>;
  /**
   * The changes that take away the doomed owners' rules, and with the last network what all of them
   * share.
   */
  compareRemoval(doomed: (owner: Owner) => boolean, signal: AbortSignal): Promise<Change[]>;
  /** Text that is another one whenever a rule may have changed; cheap. */
  fingerprint(signal: AbortSignal): Promise<string>;
  facts(signal: AbortSignal): Promise<FirewallFacts>;
  /** The rules an overlay is to have, as text, a line each. Looks at nothing. */
  describeOverlay(overlay: OverlayRuled): readonly string[];
  /** The rules a fragment is to have, as text, a line each. Looks at nothing. */
  describe(fragment: Fragment): readonly string[];
  /**
   * What has to go of a pod's rules and what has to come, as text, a line each. Looks at nothing.
   */
  describeChange(before: PluggedFragment, after: PluggedFragment): readonly string[];
}

/** What rules would be written with now. */
export type FirewallFacts = Variant | "off" | "ambiguous" | "nftables";
