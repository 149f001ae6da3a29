import type { Command } from "commander";
import {
  type InterfaceStats,
  type StatsResponse,
  StatsResponseSchema,
} from "../../api/gen/podnet/v1/pod_service_pb.ts";
import { addOutput, type Context, type OutputOptions, withPodnet } from "../context.ts";
import { document, printDocument, toPlain } from "../output.ts";
import { parseDuration } from "../parse.ts";
import { usage } from "../report.ts";
import { harmless, size, table } from "../text.ts";

interface Options extends OutputOptions {
  readonly watch: boolean;
  readonly every?: string;
}

const more = `
As the pod sees it: RX is what it receives, since the NIC was plugged. Rates are those since the line before, so the first has none.

Examples:
  podnet stats
  podnet stats web --watch --every 5s`;

export function addStats(program: Command, context: Context): void {
  addOutput(program.command("stats").description("show what passed the interfaces of pods"))
    .argument("[pod]", "name or id; default all pods")
    .option("-w, --watch", "show it again and again, with rates, until interrupted", false)
    .option("--every <duration>", "between two of these; default 1s")
    .addHelpText("after", more)
    .action(async (pod: string | undefined, options: Options) => {
      const { watch, every } = options;
      if (every !== undefined && !watch) throw usage("--every is for --watch", "Give --watch too");
      const everyMs = watch ? parseDuration("--every", every ?? "1s") : 0;
      if (watch && everyMs === 0) throw usage("--every is no time", "Give 100ms or more");
      await withPodnet(context, options, async (podnet, signal) => {
        for await (const answer of podnet.pods.stats({ idOrName: pod ?? "", everyMs }, { signal }))
          await show(context, options, answer);
      });
    });
}

async function show(
  { io }: Context,
  { output, watch }: Options,
  answer: StatsResponse,
): Promise<void> {
  if (output === "table") {
    io.stdout.write(`${statsTable(answer)}${watch ? "\n" : ""}`);
    return;
  }
  await printDocument(io, output, document("Stats", toPlain(StatsResponseSchema, answer)), watch);
}

const perSecond = (bytes: number | undefined): string =>
  bytes === undefined ? "" : `${size(bytes)}/s`;

const statsTable = ({ pods }: StatsResponse): string =>
  table(
    ["POD", "INTERFACE", "RX", "PACKETS", "DROPPED", "RATE", "TX", "PACKETS", "DROPPED", "RATE"],
    pods.flatMap(({ name, interfaces }) => interfaces.map((each) => line(name, each))),
  );

const line = (name: string, each: InterfaceStats): string[] => [
  name,
  harmless(each.guestName),
  size(Number(each.rxBytes)),
  `${each.rxPackets}`,
  `${each.rxDropped}`,
  perSecond(each.rates?.rxBytesPerS),
  size(Number(each.txBytes)),
  `${each.txPackets}`,
  `${each.txDropped}`,
  perSecond(each.rates?.txBytesPerS),
];
