import type { Command } from "commander";
import {
  type GuardPodResponse,
  PolicyDenialSchema,
} from "../../../api/gen/podnet/v1/pod_service_pb.ts";
import { addOutput, type Context, type OutputOptions, withPodnet } from "../../context.ts";
import { document, printDocument, toPlain } from "../../output.ts";
import { harmless, table } from "../../views/text.ts";

/** `podnet guard`. */
export function addGuard(program: Command, context: Context): void {
  addOutput(
    program
      .command("guard")
      .description("show what the host dropped and refused of a pod, and what policies denied"),
  )
    .argument("<pod>", "the pod")
    .action(async (idOrName: string, options: OutputOptions) => {
      const answer = await withPodnet(context, options, (podnet, signal) =>
        podnet.pods.guard({ idOrName }, { signal }),
      );
      await printCounts(context, options, answer);
    });
}

/** Prints what was dropped and refused of a pod or container, and what policies denied. */
export async function printCounts(
  { io }: Context,
  { output }: OutputOptions,
  { counts, denials }: Pick<GuardPodResponse, "counts" | "denials">,
): Promise<void> {
  if (output !== "table") {
    const items = counts.map(({ interface: name, kind, packets, bytes }) => ({
      interface: name,
      kind,
      packets: `${packets}`,
      bytes: `${bytes}`,
    }));
    const denied = denials.map((denial) => toPlain(PolicyDenialSchema, denial));
    await printDocument(io, output, document("GuardCountList", { items, denials: denied }));
    return;
  }
  const rows = counts.map(({ interface: name, kind, packets, bytes }) => [
    harmless(name),
    harmless(kind),
    `${packets}`,
    `${bytes}`,
  ]);
  const denied = denials.map(({ direction, policy, rule, reason, unit, count }) => [
    ...[direction, `${policy}/${rule}`].map(harmless),
    `${count} ${harmless(unit)}`,
    harmless(reason) || "-",
  ]);
  if (rows.length > 0) io.stdout.write(table(["INTERFACE", "KIND", "PACKETS", "BYTES"], rows));
  if (denied.length > 0)
    io.stdout.write(table(["DIRECTION", "DENIED BY", "COUNT", "REASON"], denied));
  if (rows.length + denied.length === 0) io.stderr.write("Nothing was dropped or refused\n");
}
