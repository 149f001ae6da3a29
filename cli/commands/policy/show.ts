import { type Policy, PolicySchema } from "../../../api/gen/podnet/v1/policy_service_pb.ts";
import type { Context, OutputOptions } from "../../context.ts";
import { document, printDocument, toPlain } from "../../output.ts";
import { harmless, table } from "../../views/text.ts";

/** Prints policies with the pods that have them. */
export async function printPolicies(
  { io }: Context,
  { output }: OutputOptions,
  policies: readonly Policy[],
): Promise<void> {
  if (output !== "table") {
    const items = policies.map((policy) => toPlain(PolicySchema, policy));
    await printDocument(io, output, document("PolicyList", { items }));
    return;
  }
  const shown = (names: readonly string[]): string =>
    names.length === 0 ? "-" : harmless(names.join(", "));
  const rows = policies.map(({ name, pods, containers }) => [
    harmless(name),
    shown(pods),
    shown(containers),
  ]);
  io.stdout.write(table(["NAME", "PODS", "CONTAINERS"], rows));
}
