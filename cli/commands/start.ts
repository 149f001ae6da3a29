import type { Command } from "commander";
import { PodSchema } from "../../api/gen/podnet/v1/pod_pb.ts";
import { PodnetError } from "../../core/errors.ts";
import { addOutput, type Context, type OutputOptions, withPodnet } from "../context.ts";
import { document, printDocument, toPlain } from "../output.ts";
import { podLine } from "../pod-view.ts";

export function addStart(program: Command, context: Context): void {
  addOutput(
    program.command("start").description("start a stopped or failed pod again, with its addresses"),
  )
    .argument("<pod>", "name or id")
    .action(async (idOrName: string, options: OutputOptions) => {
      const { io } = context;
      const { pod } = await withPodnet(context, options, (podnet, signal) =>
        podnet.pods.start({ idOrName }, { signal }),
      );
      if (pod === undefined) throw new PodnetError("INTERNAL", "podnetd answered without a pod");
      if (options.output === "table") io.stdout.write(`${podLine(io.stdout, pod)}\n`);
      else await printDocument(io, options.output, document("Pod", toPlain(PodSchema, pod)));
    });
}
