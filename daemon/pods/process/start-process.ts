import { PodnetError, isPodnetError } from "../../../core/errors.ts";
import { ipOf } from "../../../core/address.ts";
import { printable } from "../../../core/names.ts";
import type { Host } from "../lifecycle/host.ts";
import { type LivePod, requireGuest } from "../lifecycle/live-pod.ts";
import { staying } from "../store/pod-plan.ts";
import { FollowedProcess } from "./followed-process.ts";
import type { ProcessPlan } from "./plan-process.ts";
import { ProcessLog, logDirectory } from "./process-log.ts";

/** The id by which the guest knows a start of the process. */
const processId = (run: number): string => `start-${run}`;

/**
 * Starts the main process and follows it: its start is recorded before. Throws `PROCESS_FAILED`
 * with the exit code that a shell would have.
 */
export async function startProcess(
  live: LivePod,
  host: Host,
  signal: AbortSignal,
): Promise<string> {
  const { plan } = live;
  const process = requireProcess(plan.process);
  const guest = requireGuest(live);
  const run = host.processes.starts(plan);
  const followed = openProcess(live, host, run);
  live.process = followed;
  const { args, env, user, workdir, terminal, stdin, init } = process;
  const addresses = staying(plan.interfaces).flatMap((each) => each.addresses.map(ipOf));
  const spec = { id: followed.id, args, env, workdir, terminal, stdin, addresses };
  try {
    const more = { ...(user === undefined ? {} : { user }), ...(init === true ? { init } : {}) };
    await guest.startMain({ ...spec, ...more }, signal);
  } catch (thrown) {
    throw isPodnetError(thrown, "AGENT_REFUSED") ? notStarted(thrown, process) : thrown;
  }
  await followed.follow(guest, signal);
  return args.join(" ");
}

/** The main process of a machine that runs, whose output goes on in the log of this start. */
export function openProcess(live: LivePod, host: Host, run: number): FollowedProcess {
  const { plan } = live;
  return new FollowedProcess({
    id: processId(run),
    log: new ProcessLog(logDirectory(host.processes.logsDir, plan.podId), run),
    terminal: plan.process?.terminal === true,
    now: () => host.clock.now(),
    onEnd: (end) => host.processes.ended(plan, end),
  });
}

function requireProcess(process: ProcessPlan | undefined): ProcessPlan {
  if (process !== undefined) return process;
  throw new PodnetError("INTERNAL", "The pod has no main process");
}

/**
 * A program that is not there, and one that cannot be executed: what is said of it, and the exit
 * code (docker run).
 */
const refusals: Readonly<Record<string, { readonly why: string; readonly exitCode: number }>> = {
  ENOENT: { why: "does not exist", exitCode: 127 },
  EACCES: { why: "cannot be executed", exitCode: 126 },
};

function notStarted(refused: PodnetError, { args, user }: ProcessPlan): PodnetError {
  const errno = String(refused.details["errno"] ?? "");
  const program = refused.field === "args[0]";
  const known = program ? refusals[errno] : undefined;
  // In words of our own: quotation marks of the guest's words are escaped.
  const why = known === undefined ? refused.message : `"${printable(args[0] ?? "")}" ${known.why}`;
  return new PodnetError("PROCESS_FAILED", `The main process cannot be started: ${why}`, {
    field: program ? "process.args" : "process",
    hint: program
      ? `See that the image has the program "${args[0] ?? ""}", and that it may be executed`
      : `See that the image has the user "${user ?? "root"}" and the working directory`,
    details: { exit_code: known?.exitCode ?? 125, ...refused.details },
    cause: refused,
  });
}
