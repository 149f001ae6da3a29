import { PodnetError } from "../../../core/errors.ts";
import { parseUserText } from "../../../core/user-text.ts";
import type { ExecSession } from "../../../guest-init/channel/guest.ts";
import { type LivePod, requireGuest } from "../../pods/lifecycle/live-pod.ts";
import type { ContainerRow } from "./rows.ts";

/** Output of one program, bytes: a message of gRPC for kubelet has 16 MiB, with all in it. */
const mostBytes = 16 * 1024 * 1024 - 64 * 1024;

/**
 * Runs a program in a container to its end, as its own process's user. `timeoutMs` 0 sets no limit.
 * Output that is too much is dropped, as Kubernetes' interface wants it. Throws
 * `DEADLINE_EXCEEDED`: the program is killed then.
 */
export async function execSync(
  live: LivePod,
  row: ContainerRow,
  args: readonly string[],
  timeoutMs: number,
  caller: AbortSignal,
): Promise<{ stdout: Uint8Array; stderr: Uint8Array; exitCode: number }> {
  requireProgram(args);
  const late = timeoutMs > 0 ? [AbortSignal.timeout(timeoutMs)] : [];
  const signal = AbortSignal.any([caller, ...late]);
  const session = await startProgram(live, row, { args, terminal: false }, signal);
  // (A failure ends the events, too.)
  session.closeInput().catch(() => {});
  const output = { stdout: [] as Uint8Array[], stderr: [] as Uint8Array[] };
  let bytes = 0;
  for await (const event of session.events) {
    if (event.kind === "exit")
      return {
        stdout: Buffer.concat(output.stdout),
        stderr: Buffer.concat(output.stderr),
        exitCode: event.code,
      };
    const kept = event.data.subarray(0, mostBytes - bytes);
    bytes += kept.length;
    if (kept.length > 0) output[event.kind].push(kept);
  }
  throw new PodnetError("AGENT_DISCONNECTED", "The guest did not say how the program ended");
}

/** Throws `INVALID_ARGUMENT`. */
export function requireProgram(args: readonly string[]): void {
  if (args.length > 0 && args[0] !== "") return;
  throw new PodnetError("INVALID_ARGUMENT", "No program is named", {
    field: "cmd",
    hint: "Give the program and its arguments",
  });
}

/** Starts a program in a container, as its own process's user; it ends with the signal. */
export function startProgram(
  live: LivePod,
  { id, plan }: ContainerRow,
  { args, terminal }: { readonly args: readonly string[]; readonly terminal: boolean },
  signal: AbortSignal,
): Promise<ExecSession> {
  const user = parseUserText(plan.start.user ?? "", "container_id");
  const request = { container: id, args, env: {}, workdir: "", user, terminal };
  return requireGuest(live).exec(request, signal);
}
