import type { LookOptions } from "../../network/containers/attachments.ts";
import type {
  AttachmentFragment,
  AttachmentObserved,
  LaterChanges,
} from "../../network/containers/desired.ts";
import type { Inspection } from "../../network/bridge/inspect.ts";

/** The one way to change the host's network, as far as attachments of containers need it; see `network/containers`. */
export interface AttachmentNetwork {
  /** Makes the host and the namespace what the fragment says. */
  ensure(fragment: AttachmentFragment, signal: AbortSignal): Promise<AttachmentObserved>;
  /** Looks at what `now` answers when it is its turn, and heals it if asked to; see `network/containers`. */
  inspect(
    key: string,
    now: () => AttachmentFragment | undefined,
    options: LookOptions,
    signal: AbortSignal,
  ): Promise<Inspection>;
  /** Which namespace a path leads to now. Throws `NETNS_UNUSABLE`. */
  identify(netns: string): string;
  /**
   * What plugins after podnet's made of a container, once they are done; undefined where that cannot be said now. Throws
   * `NETNS_UNUSABLE`, `NETLINK_FAILED`.
   */
  observeLater(
    fragment: AttachmentFragment,
    signal: AbortSignal,
  ): Promise<LaterChanges | undefined>;
  /** What is not as the fragment says, a line each; none where all is. */
  check(fragment: AttachmentFragment, signal: AbortSignal): Promise<readonly string[]>;
  /** Ends all that passes, and leaves links to `sweep`: their ports are down and off the bridge, their rules are gone. Absent is success. */
  release(fragments: readonly AttachmentFragment[]): Promise<void>;
  /** Ends the links of all that was released, at once. */
  sweep(): Promise<unknown>;
}
