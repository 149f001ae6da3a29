import type { Command } from "commander";
import { StatsResponseSchema } from "../../../api/gen/podnet/v1/pod_service_pb.ts";
import { addOutput, type Context, type OutputOptions, withPodnet } from "../../context.ts";
import { document, printDocument, toPlain } from "../../output.ts";
import { parseDuration } from "../../parse.ts";
import { redrawing } from "../../views/redraw.ts";
import { topTable } from "../../views/top-view.ts";

interface Options extends OutputOptions {
  readonly once: boolean;
  readonly every: string;
}

const more = `
One line for each pod, the busiest first. RECEIVED and SENT are of all its interfaces together, as the pod sees them.
--once waits for one interval, as rates are averages over it. podnet stats has disks, drops and each interface.

Examples:
  podnet top
  podnet top --once --every 500ms`;

export function addTop(program: Command, context: Context): void {
  addOutput(program.command("top").description("show which pods are busy, until interrupted"))
    .argument("[pod]", "name or id; default all pods")
    .option("--once", "print once, and end", false)
    .option("--every <duration>", "between two of these", "1s")
    .addHelpText("after", more)
    .action(async (pod: string | undefined, { once, every, output, ...options }: Options) => {
      const { io } = context;
      const everyMs = parseDuration("--every", every);
      await withPodnet(context, options, async (podnet, signal) => {
        const write = (text: string): void => void io.stdout.write(text);
        const draw = once ? write : redrawing(io.stdout);
        let hasRates = false;
        for await (const answer of podnet.pods.stats(
          { idOrName: pod ?? "", everyMs },
          { signal },
        )) {
          // The first answer has no rates.
          if (hasRates || !once) {
            if (output === "table") draw(topTable(answer));
            else {
              const body = document("Stats", toPlain(StatsResponseSchema, answer));
              await printDocument(io, output, body, !once);
            }
          }
          if (hasRates && once) return;
          hasRates = true;
        }
      });
    });
}
