import { isPodnetError, PodnetError } from "../../core/errors.ts";
import { command } from "../protocol/codes.ts";
import { agentFeatures, type GuestConfig, type ObservedGuest } from "../protocol/configure.ts";
import { encodeGuestConfig, parseObservedGuest } from "../protocol/extension-messages.ts";
import { encodeSteps, parseStepResults } from "../protocol/steps.ts";
import { ttyHeaderSize, ttyLimit } from "../protocol/tty-frame.ts";
import type { Dialect, DialectContext } from "./dialect.ts";
import { configurationOf, type ParkedNic, parkedNicOf } from "./parked.ts";

/**
 * podnet's agent: one frame, and what the guest then observes comes back. A guest that this podnetd
 * has parked is sent steps, so that its slow engine has next to nothing to do while a pod is made.
 * `nic`: that of a clone whose template was parked.
 */
export function ourDialect(
  { control, limits }: DialectContext,
  features: readonly string[] = [],
  nic?: ParkedNic,
): Dialect {
  const takesSteps = features.includes(agentFeatures.steps);
  /** The last configuration, and the NIC that it parked. */
  let before: GuestConfig | undefined;
  let parked = takesSteps ? nic : undefined;
  const options = (config: GuestConfig, signal: AbortSignal) => ({
    deadlineMs: config.waitMs + limits.configureMs,
    signal,
    what: "its configuration",
  });

  async function byMessage(config: GuestConfig, signal: AbortSignal): Promise<ObservedGuest> {
    const payload = encodeGuestConfig(config);
    const reply = await control.call(command.configure, payload, options(config, signal));
    const observed = parseObservedGuest(reply);
    if (observed.requestId !== config.requestId)
      throw new PodnetError("AGENT_PROTOCOL", "The guest answered another configuration", {
        details: { wanted: config.requestId, found: observed.requestId },
      });
    return observed;
  }

  /** Undefined when it cannot be done so, or was not. */
  async function bySteps(
    config: GuestConfig,
    nic: ParkedNic,
    signal: AbortSignal,
  ): Promise<ObservedGuest | undefined> {
    const configuration = configurationOf(config, nic);
    if (configuration === undefined) return undefined;
    const payload = encodeSteps(configuration.steps);
    try {
      const reply = await control.call(command.steps, payload, options(config, signal));
      return configuration.observed(parseStepResults(reply));
    } catch (thrown) {
      // Asked in the other way, the agent says what it cannot do.
      if (isPodnetError(thrown, "AGENT_REFUSED")) return undefined;
      throw thrown;
    }
  }

  return {
    input: { frame: ttyLimit.extension - ttyHeaderSize, pingEvery: undefined },

    async configure(config: GuestConfig, signal: AbortSignal): Promise<ObservedGuest> {
      const [last, nic] = [before, parked];
      before = config;
      parked = undefined;
      const stepped = nic && (await bySteps(config, nic, signal));
      if (stepped !== undefined) return stepped;
      const observed = await byMessage(config, signal);
      // Whoever configures it meanwhile knows its state better.
      if (takesSteps && before === config) parked = parkedNicOf(last, config, observed);
      return observed;
    },
  };
}
