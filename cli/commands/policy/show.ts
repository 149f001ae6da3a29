import { type Policy, PolicySchema } from "../../../api/gen/podnet/v1/policy_service_pb.ts";
import type { Context, OutputOptions } from "../../context.ts";
import { document, printDocument, toPlain } from "../../output.ts";
import { harmless, table } from "../../text.ts";

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
  const rows = policies.map(({ name, pods }) => [
    harmless(name),
    pods.length === 0 ? "-" : harmless(pods.join(", ")),
  ]);
  io.stdout.write(table(["NAME", "PODS"], rows));
}
