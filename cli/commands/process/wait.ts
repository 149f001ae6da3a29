import type { Command } from "commander";
import type { Podnet } from "../../../api/client.ts";
import { type Pod, PodState } from "../../../api/gen/podnet/v1/pod_pb.ts";
import { WatchPodsResponse_Kind as Kind } from "../../../api/gen/podnet/v1/pod_service_pb.ts";
import { PodnetError } from "../../../core/errors.ts";
import { type CommonOptions, type Context, withPodnet } from "../../context.ts";

const more = `
Waits until the pod's machine has ended too, and is not to start again by its restart policy. Prints 128+n for signal n,
and 137 for a process that ended with its machine.

Examples:
  podnet wait job`;

export function addWait(program: Command, context: Context): void {
  program
    .command("wait")
    .description("wait for the end of a pod's main process, and print its exit code")
    .argument("<pod>", "name or id")
    .addHelpText("after", more)
    .action(async (idOrName: string, options: CommonOptions) => {
      const code = await withPodnet(context, options, (podnet, signal) =>
        exitCodeOf(podnet, idOrName, signal),
      );
      context.io.stdout.write(`${code}\n`);
    });
}

async function exitCodeOf(podnet: Podnet, idOrName: string, signal: AbortSignal): Promise<number> {
  for await (const { kind, pod } of podnet.pods.watch({ idOrName }, { signal })) {
    if (kind === Kind.DELETED) break;
    if (pod === undefined) continue;
    if (kind === Kind.SNAPSHOT && pod.process === undefined)
      throw new PodnetError("UNSUPPORTED", `Pod "${pod.name}" has no main process`, {
        hint: "Wait for a pod of podnet run, or one with a process in its spec",
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
