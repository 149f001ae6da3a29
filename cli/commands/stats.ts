import type { Command } from "commander";
import { StatsResponseSchema } from "../../api/gen/podnet/v1/pod_service_pb.ts";
import { addOutput, type Context, type OutputOptions, withPodnet } from "../context.ts";
import { document, printDocument, toPlain } from "../output.ts";
import { parseDuration } from "../parse.ts";
import { redrawing } from "../views/redraw.ts";
import { usage } from "../usage.ts";
import { statsTables } from "../views/stats-view.ts";

interface Options extends OutputOptions {
  readonly watch: boolean;
  readonly every?: string;
}

const more = `
CPU is the VM's use of the host's processors: 100 % is one processor. MEMORY is the memory of the guest and of QEMU itself,
LIMIT the limit for both. Interfaces are shown as the pod sees them: RX is received by the pod, counted since the NIC was
plugged. Rates are averages since the previous line, so the first line has none. On a terminal, --watch updates in place.

Examples:
  podnet stats
  podnet stats web --watch --every 5s`;

export function addStats(program: Command, context: Context): void {
  addOutput(
    program.command("stats").description("show what pods use: processors, memory, disks, network"),
  )
    .argument("[pod]", "name or id; default all pods")
    .option("-w, --watch", "repeat with rates until interrupted", false)
    .option("--every <duration>", "between two of these; default 1s")
    .addHelpText("after", more)
    .action(async (pod: string | undefined, options: Options) => {
      const { watch, every, output } = options;
      const { io } = context;
      if (every !== undefined && !watch) throw usage("--every is for --watch", "Give --watch too");
      const everyMs = watch ? parseDuration("--every", every ?? "1s") : 0;
      if (watch && everyMs === 0) throw usage("--every is no time", "Give 100ms or more");
      await withPodnet(context, options, async (podnet, signal) => {
        const draw = watch ? redrawing(io.stdout) : (text: string) => void io.stdout.write(text);
        for await (const answer of podnet.pods.stats(
          { idOrName: pod ?? "", everyMs },
          { signal },
        )) {
          if (output === "table") draw(statsTables(answer));
          else {
            const body = document("Stats", toPlain(StatsResponseSchema, answer));
            await printDocument(io, output, body, watch);
          }
        }
      });
    });
}
