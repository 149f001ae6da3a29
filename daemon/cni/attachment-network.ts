import type { AttachmentFragment, AttachmentObserved } from "../../network/attachment/desired.ts";

/** The one way to change the host's network, as far as attachments of containers need it; see `network/attachment`. */
export interface AttachmentNetwork {
  /** Makes the host and the namespace what the fragment says. */
  ensure(fragment: AttachmentFragment, signal: AbortSignal): Promise<AttachmentObserved>;
  /** What is not as the fragment says, a line each; none where all is. */
  check(fragment: AttachmentFragment, signal: AbortSignal): Promise<readonly string[]>;
  /** Ends all that passes, and leaves links to `sweep`: their ports are down and off the bridge, their rules are gone. Absent is success. */
  release(fragments: readonly AttachmentFragment[]): Promise<void>;
  /** Ends the links of all that was released, at once. */
  sweep(): Promise<unknown>;
}
