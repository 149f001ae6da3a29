import type { Command } from "commander";
import { DiffResponseSchema, type PartDiff } from "../../../api/gen/podnet/v1/node_service_pb.ts";
import { addOutput, type Context, type OutputOptions, withPodnet } from "../../context.ts";
import { exitCodes } from "../../exit-codes.ts";
import { document, printDocument, toPlain } from "../../output.ts";
import { count, harmless, styled, table } from "../../views/text.ts";

interface Options extends OutputOptions {
  readonly json?: boolean;
}

const more = `
Compares bridges, addresses, settings, rules and the ports of running pods with podnet's plan, and changes nothing.
podnetd repairs differences by itself every drift_s seconds. Exits with 0 if everything is as planned, with 1 on drift.`;

export function addDiff(program: Command, context: Context): void {
  addOutput(
    program.command("diff").description("show differences between the host and podnet's plan"),
  )
    .option("--json", "the same as -o json")
    .addHelpText("after", more)
    .action(async (options: Options) => {
      const { io } = context;
      const diff = await withPodnet(context, options, (podnet, signal) =>
        podnet.node.diff({}, { signal }),
      );
      if (diff.drift) context.exitCode = exitCodes.failed;
      const output = options.json === true ? "json" : options.output;
      if (output !== "table") {
        await printDocument(io, output, document("Diff", toPlain(DiffResponseSchema, diff)));
        return;
      }
      const rows = diff.parts.flatMap(partRows);
      if (rows.length > 0)
        io.stdout.write(table(["PART", "POD", "SUBJECT", "FOUND", "WANTED"], rows));
      const parts = count(diff.parts.length, "part");
      io.stdout.write(
        diff.drift
          ? styled(io.stdout, "red", `${count(rows.length, "deviation")} in ${parts}\n`)
          : styled(io.stdout, "green", `${parts}, all as planned\n`),
      );
    });
}

function partRows({ part, pod, found, error }: PartDiff): string[][] {
  const rows = found.map((each) => [each.subject, each.found, each.wanted]);
  if (error !== undefined) rows.push(["", `${error.code}: ${error.message}`, ""]);
  return rows.map((row) => [part, pod, ...row].map(harmless));
}
