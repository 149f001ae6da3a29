import type { Command } from "commander";
import { PodSchema } from "../../api/gen/podnet/v1/pod_pb.ts";
import { addOutput, type Context, type OutputOptions, withPodnet } from "../context.ts";
import { document, printDocument, toPlain } from "../output.ts";
import { collect, parsePairs } from "../parse.ts";
import { podTable } from "../pod-view.ts";

interface Options extends OutputOptions {
  readonly label?: readonly string[];
  readonly quiet?: boolean;
}

export function addList(program: Command, context: Context): void {
  addOutput(program.command("list").alias("ls").description("list pods, oldest first"))
    .option("-l, --label <key=value>", "only pods with this label; may be repeated", collect)
    .option("-q, --quiet", "print ids alone")
    .action(async (options: Options) => {
      const { io } = context;
      const { pods, cursor } = await withPodnet(context, options, (podnet, signal) =>
        podnet.pods.list({ labels: parsePairs("--label", options.label ?? []) }, { signal }),
      );
      if (options.output !== "table") {
        const items = pods.map((pod) => toPlain(PodSchema, pod));
        const body = { cursor: cursor.toString(), items };
        await printDocument(io, options.output, document("PodList", body));
      } else if (options.quiet === true) {
        io.stdout.write(pods.map((pod) => `${pod.id}\n`).join(""));
      } else if (pods.length > 0) io.stdout.write(podTable(pods, Date.now()));
      else io.stderr.write("No pods. Make one with: podnet create\n");
    });
}
