import type { Command } from "commander";
import type { Podnet } from "../../../api/client.ts";
import { type Pod, PodState } from "../../../api/gen/podnet/v1/pod_pb.ts";
import { WatchPodsResponse_Kind as Kind } from "../../../api/gen/podnet/v1/pod_service_pb.ts";
import { PodnetError } from "../../../core/errors.ts";
import { type Condition, said, waitFor } from "../../../client/wait-for.ts";
import { type CommonOptions, type Context, withPodnet } from "../../context.ts";
import { parseDuration } from "../../parse.ts";
import { usage } from "../../usage.ts";
import type { Io } from "../../io.ts";
import { podLine } from "../../views/pod-view.ts";
import { harmless } from "../../views/text.ts";
import { sinceText, ticking, whole } from "../../views/ticking.ts";

interface Options extends CommonOptions {
  readonly for?: string;
  readonly timeout?: string;
}

const more = `
Without --for it waits for the end of the main process: until the pod's machine has ended too, and is not to start again
by its restart policy. It prints 128+n for signal n, and 137 for a process that ended with its machine.
Conditions of --for:
  running      the pod's VM runs
  configured   its guest has reported all addresses
  port:N       it accepts TCP connections at port N, from here
  stopped      its VM has ended

Examples:
  podnet wait job
  podnet wait web --for port:80 --timeout 30s`;

export function addWait(program: Command, context: Context): void {
  program
    .command("wait")
    .description("wait for the end of a pod's main process, or until a pod is ready")
    .argument("<pod>", "name or id")
    .option("--for <condition>", "running, configured, stopped, or port:N")
    .option("--timeout <duration>", "with --for: exit with 124 after it; default 1m")
    .addHelpText("after", more)
    .action((idOrName: string, options: Options) => {
      if (options.for !== undefined) return waitForCondition(context, idOrName, options);
      if (options.timeout !== undefined)
        throw usage("--timeout needs --for", "Name what to wait for, such as --for running");
      return waitForEnd(context, idOrName, options);
    });
}

async function waitForCondition(
  context: Context,
  idOrName: string,
  options: Options,
): Promise<void> {
  const { io } = context;
  const timeoutMs = parseDuration("--timeout", options.timeout ?? "1m");
  const condition = options.for as Condition;
  const pod = await withPodnet(context, options, async (podnet, signal) => {
    const { pod } = await podnet.pods.get({ idOrName }, { signal });
    if (pod === undefined) throw new PodnetError("INTERNAL", "podnetd answered without a pod");
    using _line = waiting(
      io,
      `Waiting for ${harmless(pod.name)} to be ${said(condition)}`,
      timeoutMs,
    );
    return await waitFor(podnet, pod, condition, { timeoutMs, signal });
  });
  io.stdout.write(`${podLine(io.stdout, pod)}\n`);
}

async function waitForEnd(
  context: Context,
  idOrName: string,
  options: CommonOptions,
): Promise<void> {
  const code = await withPodnet(context, options, async (podnet, signal) => {
    using _line = waiting(context.io, `Waiting for the process of ${harmless(idOrName)}`);
    return await exitCodeOf(podnet, idOrName, signal);
  });
  context.io.stdout.write(`${code}\n`);
}

/** How long it has waited, on a terminal; with a limit also how long it will at most. */
function waiting({ stderr }: Io, what: string, limitMs?: number): Disposable {
  const began = performance.now();
  const most = limitMs === undefined ? "" : ` of ${whole(limitMs)} at most`;
  return ticking(stderr, () => {
    const since = sinceText(performance.now() - began);
    return since === "" ? "" : `${what}${since}${most} …`;
  });
}

async function exitCodeOf(podnet: Podnet, idOrName: string, signal: AbortSignal): Promise<number> {
  for await (const { kind, pod } of podnet.pods.watch({ idOrName }, { signal })) {
    if (kind === Kind.DELETED) break;
    if (pod === undefined) continue;
    if (kind === Kind.SNAPSHOT && pod.process === undefined)
      throw new PodnetError("UNSUPPORTED", `Pod "${pod.name}" has no main process`, {
        hint: "Name what to wait for, such as --for running; pods of podnet run have a main process",
      });
    const code = codeOf(pod);
    if (code !== undefined) return code;
  }
  throw new PodnetError("POD_NOT_FOUND", "The pod was deleted before its main process ended", {
    hint: "See podnet list",
  });
}

/** The exit code of a pod whose end is final. */
const codeOf = ({ state, process }: Pod): number | undefined =>
  (state === PodState.STOPPED || state === PodState.FAILED) && process?.restarting === false
    ? (process.exitCode ?? 137)
    : undefined;
