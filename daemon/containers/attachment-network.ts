import type { LookOptions } from "../../network/containers/attachments.ts";
import type {
  AttachmentFragment,
  AttachmentObserved,
  LaterChanges,
} from "../../network/containers/desired.ts";
import type { Inspection } from "../../network/bridge/inspect.ts";

/**
 * The part of the host's network interface that attachments use; see `network/containers`. Changes
 * to the host go only by it.
 */
export interface AttachmentNetwork {
  /** Converges the namespace to the fragment, and the host to `planned` (default: the fragment). */
  ensure(
    fragment: AttachmentFragment,
    signal: AbortSignal,
    planned?: AttachmentFragment,
  ): Promise<AttachmentObserved>;
  /**
   * Compares the host with the fragment that `now` returns in its turn, and repairs it if asked to;
   * see `network/containers`.
   */
  inspect(
    key: string,
    now: () => AttachmentFragment | undefined,
    options: LookOptions,
    signal: AbortSignal,
  ): Promise<Inspection>;
  /** Which namespace a path leads to now. Throws `NETNS_UNUSABLE`. */
  identify(netns: string): string;
  /**
   * Returns what later plugins changed of a container, once they are done; undefined where that
   * cannot be observed now. Throws `NETNS_UNUSABLE`, `NETLINK_FAILED`.
   */
  observeLater(
    fragment: AttachmentFragment,
    signal: AbortSignal,
  ): Promise<LaterChanges | undefined>;
  /** Lets a container's port send what the fragment that `now` returns says, and nothing else. */
  guard(now: () => AttachmentFragment | undefined, signal: AbortSignal): Promise<void>;
  /** How the inside differs from the fragment, and the host from `planned`, a line each. */
  check(
    fragment: AttachmentFragment,
    signal: AbortSignal,
    planned?: AttachmentFragment,
  ): Promise<readonly string[]>;
  /**
   * Cuts all traffic: ports are taken down and off the bridge, and rules are removed. The links are
   * left for `sweep`. Absent is success.
   */
  release(fragments: readonly AttachmentFragment[]): Promise<void>;
  /** Ends the links of all that was released, at once. */
  sweep(): Promise<unknown>;
}
