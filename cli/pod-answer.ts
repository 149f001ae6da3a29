import type { Podnet } from "../api/client.ts";
import { type Pod, PodSchema } from "../api/gen/podnet/v1/pod_pb.ts";
import { PodnetError } from "../core/errors.ts";
import { type Context, type OutputOptions, withPodnet } from "./context.ts";
import { document, printDocument, toPlain } from "./output.ts";
import { podLine } from "./views/pod-view.ts";

/** Asks for something of one pod, and prints the pod it is answered with. */
export async function askForPod(
  context: Context,
  options: OutputOptions,
  ask: (pods: Podnet["pods"], signal: AbortSignal) => Promise<{ readonly pod?: Pod | undefined }>,
): Promise<void> {
  const { io } = context;
  const { pod } = await withPodnet(context, options, (podnet, signal) => ask(podnet.pods, signal));
  if (pod === undefined) throw new PodnetError("INTERNAL", "podnetd answered without a pod");
  if (options.output === "table") io.stdout.write(`${podLine(io.stdout, pod)}\n`);
  else await printDocument(io, options.output, document("Pod", toPlain(PodSchema, pod)));
}
