import type { Command } from "commander";
import { PodSchema } from "../../../api/gen/podnet/v1/pod_pb.ts";
import { addOutput, type Context, type OutputOptions, withPodnet } from "../../context.ts";
import { document, printDocument, toPlain } from "../../output.ts";
import { collect, parsePairs } from "../../parse.ts";
import { reportStale } from "../../views/overlay-text.ts";
import { podTable } from "../../views/pod-view.ts";
import { count } from "../../views/text.ts";

interface Options extends OutputOptions {
  readonly label?: readonly string[];
  readonly quiet?: boolean;
  readonly allHosts?: boolean;
}

export function addList(program: Command, context: Context): void {
  addOutput(program.command("list").aliases(["ls", "ps"]).description("list pods, oldest first"))
    .option("-l, --label <key=value>", "only pods with this label; may be repeated", collect)
    .option("-q, --quiet", "print only the ids")
    .option("--all-hosts", "also the pods of other hosts of an overlay")
    .action(async (options: Options) => {
      const { io } = context;
      const { allHosts = false } = options;
      const labels = parsePairs("--label", options.label ?? []);
      const { pods, cursor, staleMs, skippedRecords } = await withPodnet(
        context,
        options,
        (podnet, signal) => podnet.pods.list({ labels, allHosts }, { signal }),
      );
      if (options.output !== "table") {
        const items = pods.map((pod) => toPlain(PodSchema, pod));
        const others = {
          ...(staleMs === undefined ? {} : { staleMs: staleMs.toString() }),
          ...(allHosts ? { skippedRecords } : {}),
        };
        const body = { cursor: cursor.toString(), ...others, items };
        await printDocument(io, options.output, document("PodList", body));
        return;
      }
      if (options.quiet === true) io.stdout.write(pods.map((pod) => `${pod.id}\n`).join(""));
      else if (pods.length > 0) io.stdout.write(podTable(pods, Date.now(), allHosts));
      else io.stderr.write("No pods. Make one with: podnet create\n");
      reportStale(io, staleMs);
      if (skippedRecords > 0)
        io.stderr.write(`${count(skippedRecords, "record")} of others cannot be read\n`);
    });
}
