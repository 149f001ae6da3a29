import type { Podnet } from "../api/client.ts";
import { type Pod, PodSchema } from "../api/gen/podnet/v1/pod_pb.ts";
import { isPodnetError, PodnetError } from "../core/errors.ts";
import { type Context, type OutputOptions, withPodnet } from "./context.ts";
import type { Io } from "./io.ts";
import { document, printDocument, toPlain } from "./output.ts";
import { podLine } from "./views/pod-view.ts";
import { whileShown } from "./views/ticking.ts";
import { report } from "./views/report.ts";

/**
 * Asks for something of each pod, one after the other, and prints the pods it is answered with. One
 * that fails does not keep the others; the last failure decides the exit code.
 */
export async function askForPods(
  context: Context,
  options: OutputOptions,
  named: readonly string[],
  ask: (
    pods: Podnet["pods"],
    idOrName: string,
    signal: AbortSignal,
  ) => Promise<{ readonly pod?: Pod | undefined }>,
): Promise<void> {
  const { io } = context;
  const several = named.length > 1;
  await withPodnet(context, options, async (podnet, signal) => {
    for (const idOrName of named) {
      try {
        const answer = await whileShown(io.stderr, `${verbOf(context)} ${idOrName}`, () =>
          ask(podnet.pods, idOrName, signal),
        );
        await printPod(io, options, answer, several);
      } catch (thrown) {
        if (!several || isPodnetError(thrown, "DAEMON_UNREACHABLE", "CANCELLED")) throw thrown;
        context.exitCode = report(context, thrown, options.output);
      }
    }
  });
}

/** The command's own name, as a sentence begins: `Restart`. */
const verbOf = ({ command }: Context): string =>
  (command?.name() ?? "").replace(/^[a-z]/, (letter) => letter.toUpperCase());

/** Asks for something of one pod, and prints the pod it is answered with. */
export async function askForPod(
  context: Context,
  options: OutputOptions,
  ask: (pods: Podnet["pods"], signal: AbortSignal) => Promise<{ readonly pod?: Pod | undefined }>,
): Promise<void> {
  const answer = await withPodnet(context, options, (podnet, signal) => ask(podnet.pods, signal));
  await printPod(context.io, options, answer, false);
}

/** `several`: each is a document of its own, JSON on one line. */
async function printPod(
  io: Io,
  options: OutputOptions,
  { pod }: { readonly pod?: Pod | undefined },
  several: boolean,
): Promise<void> {
  if (pod === undefined) throw new PodnetError("INTERNAL", "podnetd answered without a pod");
  if (options.output === "table") io.stdout.write(`${podLine(io.stdout, pod)}\n`);
  else await printDocument(io, options.output, document("Pod", toPlain(PodSchema, pod)), several);
}
