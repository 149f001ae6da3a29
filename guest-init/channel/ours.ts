import { PodnetError } from "../../core/errors.ts";
import { command } from "../protocol/codes.ts";
import type { GuestConfig, ObservedGuest } from "../protocol/configure.ts";
import { encodeGuestConfig, parseObservedGuest } from "../protocol/extension-messages.ts";
import { ttyHeaderSize, ttyLimit } from "../protocol/tty-frame.ts";
import type { Dialect, DialectContext } from "./dialect.ts";

/** podnet's agent: one frame, and what the guest then observes comes back. */
export function ourDialect({ control, limits }: DialectContext): Dialect {
  return {
    input: { frame: ttyLimit.extension - ttyHeaderSize, pingEvery: undefined },

    async configure(config: GuestConfig, signal: AbortSignal): Promise<ObservedGuest> {
      const reply = await control.call(command.configure, encodeGuestConfig(config), {
        deadlineMs: config.waitMs + limits.configureMs,
        signal,
        what: "its configuration",
      });
      const observed = parseObservedGuest(reply);
      if (observed.requestId !== config.requestId)
        throw new PodnetError("AGENT_PROTOCOL", "The guest answered another configuration", {
          details: { wanted: config.requestId, found: observed.requestId },
        });
      return observed;
    },
  };
}
