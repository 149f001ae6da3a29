import type { GuestConfig, ObservedGuest } from "../protocol/configure.ts";
import type { Control } from "./control.ts";
import type { Processes } from "./exec.ts";
import type { InputStyle } from "./exec-session.ts";
import type { ChannelLimits } from "./limits.ts";

/** The means by which a dialect communicates. */
export interface DialectContext {
  readonly control: Control;
  readonly processes: Processes;
  readonly limits: ChannelLimits;
  /** Aborted when the guest's agent starts anew: what is under way is to stop. */
  readonly life: AbortSignal;
}

/** The differences between our agent and a plain hyperstart. One per READY. */
export interface Dialect {
  readonly input: InputStyle;
  /** See `Guest.configure`. */
  configure(config: GuestConfig, signal: AbortSignal): Promise<ObservedGuest>;
}
