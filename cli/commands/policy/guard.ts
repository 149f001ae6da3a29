import type { Command } from "commander";
import type { GuardCount } from "../../../api/gen/podnet/v1/pod_service_pb.ts";
import { addOutput, type Context, type OutputOptions, withPodnet } from "../../context.ts";
import { document, printDocument } from "../../output.ts";
import { harmless, table } from "../../text.ts";

/** `podnet guard`. */
export function addGuard(program: Command, context: Context): void {
  addOutput(
    program
      .command("guard")
      .description("show what the host dropped and refused of what a pod sent, by kind"),
  )
    .argument("<pod>", "the pod")
    .action(async (idOrName: string, options: OutputOptions) => {
      const { counts } = await withPodnet(context, options, (podnet, signal) =>
        podnet.pods.guard({ idOrName }, { signal }),
      );
      await printCounts(context, options, counts);
    });
}

/** Prints what was dropped and refused of a pod or container. */
export async function printCounts(
  { io }: Context,
  { output }: OutputOptions,
  counts: readonly GuardCount[],
): Promise<void> {
  if (output !== "table") {
    const items = counts.map(({ interface: name, kind, packets, bytes }) => ({
      interface: name,
      kind,
      packets: `${packets}`,
      bytes: `${bytes}`,
    }));
    await printDocument(io, output, document("GuardCountList", { items }));
    return;
  }
  const rows = counts.map(({ interface: name, kind, packets, bytes }) => [
    harmless(name),
    harmless(kind),
    `${packets}`,
    `${bytes}`,
  ]);
  if (rows.length > 0) io.stdout.write(table(["INTERFACE", "KIND", "PACKETS", "BYTES"], rows));
  else io.stderr.write("Nothing was dropped or refused\n");
}
