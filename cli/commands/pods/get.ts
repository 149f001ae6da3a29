import type { Command } from "commander";
import { PodSchema } from "../../../api/gen/podnet/v1/pod_pb.ts";
import { PodnetError } from "../../../core/errors.ts";
import { addOutput, type Context, type OutputOptions, withPodnet } from "../../context.ts";
import { document, printDocument, toPlain } from "../../output.ts";
import { podDetails } from "../../views/pod-view.ts";

export function addGet(program: Command, context: Context): void {
  addOutput(
    program.command("get").alias("inspect").description("show one pod with all its details"),
  )
    .argument("<pod>", "name or id")
    .action(async (idOrName: string, options: OutputOptions) => {
      const { io } = context;
      const { pod } = await withPodnet(context, options, (podnet, signal) =>
        podnet.pods.get({ idOrName }, { signal }),
      );
      if (pod === undefined) throw new PodnetError("INTERNAL", "podnetd answered without a pod");
      if (options.output === "table") io.stdout.write(podDetails(io.stdout, pod, Date.now()));
      else await printDocument(io, options.output, document("Pod", toPlain(PodSchema, pod)));
    });
}
