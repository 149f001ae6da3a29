import type { Change } from "../model/change.ts";
import type { OverlayRuled } from "../model/overlay.ts";
import type { SenderChange } from "../model/overlay-senders.ts";

/**
 * The interface for overlays' rules: the configured firewall driver, behind the queue of the host's
 * network.
 */
export interface OverlayRules {
  ensure(overlay: OverlayRuled, signal: AbortSignal): Promise<readonly Change[]>;
  /**
   * Starts or stops accepting these hosts by their own addresses; no other rule of the overlay is
   * compared.
   */
  follow(change: SenderChange, signal: AbortSignal): Promise<readonly Change[]>;
  diff(overlay: OverlayRuled, signal: AbortSignal): Promise<readonly Change[]>;
  remove(which: (name: string) => boolean, signal: AbortSignal): Promise<readonly Change[]>;
  /** As text, a line each, without a look at the host. */
  describe(overlay: OverlayRuled): readonly string[];
}
