import type { Change } from "../model/change.ts";
import type { Fragment, NetworkFragment, PluggedFragment } from "../model/desired.ts";
import type { Variant } from "../model/rules.ts";
import type { OverlayRuled } from "../model/overlay.ts";
import type { SenderChange } from "../model/overlay-senders.ts";
import type { Owner } from "../model/ownership.ts";

/**
 * The writer of the host's rules. It observes and returns changes, which `apply.ts` carries out; it
 * changes nothing itself. Every method throws `FIREWALL_FAILED` if the rules cannot be read, and
 * `CANCELLED`.
 */
export interface FirewallDriver {
  /**
   * The changes that give a network its rules, and remove rules of an earlier configuration; they
   * remove all if it should have none. Throws `CHAIN_CONFLICT`.
   */
  compareNetwork(fragment: NetworkFragment, signal: AbortSignal): Promise<Change[]>;
  /**
   * The changes that make a pod's published ports reachable, in one commit per table. Not called
   * for a pod that has never published anything. Throws as `compareNetwork`.
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
   * The changes that give all these pods their rules, in one commit per table. Throws as
   * `comparePod`, for all of them.
   */
  comparePods(fragments: readonly PluggedFragment[], signal: AbortSignal): Promise<Change[]>;
  /**
   * The changes that give an overlay its rules, and remove those of a former network, subnet or
   * setting. Throws as `compareNetwork`.
   */
  compareOverlay(overlay: OverlayRuled, signal: AbortSignal): Promise<Change[]>;
  /**
   * The changes that start or stop accepting these hosts by their own addresses, and no other
   * hosts. Throws as `compareNetwork`.
   */
  compareSenders(change: SenderChange, signal: AbortSignal): Promise<Change[]>;
  /**
   * The changes that remove these owners' rules, and with the last network the rules that all
   * share.
   */
  compareRemoval(removed: (owner: Owner) => boolean, signal: AbortSignal): Promise<Change[]>;
  /** Text that is another one whenever a rule may have changed; cheap. */
  fingerprint(signal: AbortSignal): Promise<string>;
  facts(signal: AbortSignal): Promise<FirewallFacts>;
  /** The desired rules of an overlay, as text, a line each. Observes nothing. */
  describeOverlay(overlay: OverlayRuled): readonly string[];
  /** The desired rules of a fragment, as text, a line each. Observes nothing. */
  describe(fragment: Fragment): readonly string[];
  /** The removed and the added rules of a pod, as text, a line each. Observes nothing. */
  describeChange(before: PluggedFragment, after: PluggedFragment): readonly string[];
}

/** The driver and variant that would write rules now. */
export type FirewallFacts = Variant | "off" | "nftables";
