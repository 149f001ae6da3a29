import { type Command, Option } from "commander";
import { type Pod, PodSchema } from "../../../api/gen/podnet/v1/pod_pb.ts";
import type { ListPodsResponse } from "../../../api/gen/podnet/v1/pod_service_pb.ts";
import { addOutput, type CommonOptions, type Context, withPodnet } from "../../context.ts";
import type { Io } from "../../io.ts";
import { document, type Format, printDocument, toPlain } from "../../output.ts";
import { collect, parsePairs } from "../../parse.ts";
import { reportStale } from "../../views/overlay-text.ts";
import { filterPods, sortPods } from "../../views/pod-choice.ts";
import { podRows } from "../../views/pod-view.ts";
import { count, csv, printTable, table } from "../../views/text.ts";

interface Options extends CommonOptions {
  readonly output: Format | "wide" | "csv";
  readonly label?: readonly string[];
  readonly filter?: readonly string[];
  readonly sort?: string;
  readonly quiet?: boolean;
  readonly allHosts?: boolean;
}

const more = `
Filters: state, name, id, network, address, label. Several of one key are alternatives, those of different keys must all
hold; labels must all hold. * stands for any text. Orders of --sort: name, created, state, network, memory; -KEY turns
an order round. -o wide and -o csv have more columns.

Examples:
  podnet list --filter state=running,label=app=shop
  podnet list --filter name=web-* --sort -created
  podnet list -o csv > pods.csv`;

export function addList(program: Command, context: Context): void {
  const command = program.command("list").aliases(["ls", "ps"]);
  addOutput(command.description("list pods, oldest first"), ["wide", "csv"])
    .option("-l, --label <key=value>", "only pods with this label; may be repeated", collect)
    .option("--filter <key=value>", "only pods that have it; may be repeated", collect)
    .option("--sort <key>", "in this order")
    .addOption(new Option("-a, --all", "stopped pods are always in the list").hideHelp())
    .option("-q, --quiet", "print only the ids")
    .option("--all-hosts", "also the pods of other hosts of an overlay")
    .addHelpText("after", more)
    .action(async (options: Options) => {
      const { allHosts = false, filter = [], sort } = options;
      const labels = parsePairs("--label", options.label ?? []);
      // (Both refuse what they do not know before podnetd is asked.)
      const choose = (pods: readonly Pod[]): readonly Pod[] => {
        const chosen = filterPods(pods, filter);
        return sort === undefined ? chosen : sortPods(chosen, sort);
      };
      choose([]);
      const answer = await withPodnet(context, options, (podnet, signal) =>
        podnet.pods.list({ labels, allHosts }, { signal }),
      );
      await print(context.io, options, answer, choose(answer.pods));
    });
}

async function print(
  io: Io,
  { output, quiet = false, allHosts = false }: Options,
  { cursor, staleMs, skippedRecords }: ListPodsResponse,
  pods: readonly Pod[],
): Promise<void> {
  if (output !== "table" && output !== "wide" && output !== "csv") {
    const items = pods.map((pod) => toPlain(PodSchema, pod));
    const others = {
      ...(staleMs === undefined ? {} : { staleMs: staleMs.toString() }),
      ...(allHosts ? { skippedRecords } : {}),
    };
    const body = { cursor: cursor.toString(), ...others, items };
    await printDocument(io, output, document("PodList", body));
    return;
  }
  const wide = output !== "table";
  const { heading, rows } = podRows(pods, Date.now(), { hosts: allHosts, wide });
  if (quiet) io.stdout.write(pods.map((pod) => `${pod.id}\n`).join(""));
  else if (output === "csv") io.stdout.write(csv([heading, ...rows]));
  else if (pods.length === 0) io.stderr.write("No pods. Make one with: podnet create\n");
  else if (wide) io.stdout.write(table(heading, rows));
  else printTable(io.stdout, heading, rows);
  reportStale(io, staleMs);
  if (skippedRecords > 0)
    io.stderr.write(`${count(skippedRecords, "record")} of others cannot be read\n`);
}
