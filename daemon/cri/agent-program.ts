import { PodnetError } from "../../core/errors.ts";
import type { ExecEvent, ExecSession } from "../../guest-init/channel/guest.ts";
import { agentFeatures } from "../../guest-init/protocol/configure.ts";
import { type LivePod, requireGuest } from "../pods/lifecycle/live-pod.ts";

/** The agent's own program, wherever its files are. */
const program = "/proc/self/exe";

/** Whether a machine's agent is one that does these things. */
export const hasAgentProgram = (live: LivePod): boolean =>
  live.identity?.features?.includes(agentFeatures.containerProcesses) === true;

/** Runs the agent's program in a process of its own, alongside the containers. */
export function startAgentProgram(
  live: LivePod,
  args: readonly string[],
  signal: AbortSignal,
): Promise<ExecSession> {
  const request = { args: [program, ...args], env: {}, workdir: "", terminal: false };
  return requireGuest(live).exec(request, signal);
}

/** How it ended, and what it said about that. */
export async function endOf(
  events: AsyncIterable<ExecEvent>,
): Promise<{ readonly code: number; readonly text: string }> {
  let text = "";
  for await (const event of events) {
    if (event.kind === "exit") return { code: event.code, text: text.trim() };
    // A guest that says more than that is not listened to.
    if (text.length < 1000) text += Buffer.from(event.data).toString("utf8", 0, 1000);
  }
  throw new PodnetError(
    "AGENT_DISCONNECTED",
    "The guest did not say how its agent's program ended",
  );
}
