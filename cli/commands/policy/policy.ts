import { type Command, Option } from "commander";
import {
  type PolicyEffect,
  PolicyEffectSchema,
} from "../../../api/gen/podnet/v1/policy_service_pb.ts";
import { addOutput, type Context, type OutputOptions, withPodnet } from "../../context.ts";
import { document, printDocument, toPlain } from "../../output.ts";
import { harmless, table } from "../../views/text.ts";
import { addApply } from "./apply.ts";
import { addExplain } from "./explain.ts";
import { addLearn } from "./learn.ts";
import { printPolicies } from "./show.ts";
import { addTail } from "./tail.ts";

/** The commands about policies. */
export function addPolicy(program: Command, context: Context): void {
  const group = program
    .command("policy")
    .alias("policies")
    .description("which flows pods may open, and others may open to them");
  addList(group, context);
  addGet(group, context);
  addApply(group, context);
  addDelete(group, context);
  addExplain(group, context);
  addTail(group, context);
  addLearn(group, context);
}

function addList(group: Command, context: Context): void {
  const list = group.command("list", { isDefault: true });
  addOutput(list.description("list policies and the pods that have them")).action(
    async (options: OutputOptions) => {
      const { policies } = await withPodnet(context, options, (podnet, signal) =>
        podnet.policies.list({}, { signal }),
      );
      await printPolicies(context, options, policies);
    },
  );
}

function addGet(group: Command, context: Context): void {
  group
    .command("get")
    .description("print a policy as it was applied")
    .argument("<name>", "the policy")
    .addOption(
      new Option("-o, --output <format>", "how to print").choices(["json", "yaml"]).default("yaml"),
    )
    .action(async (name: string, options: OutputOptions & { readonly output: "json" | "yaml" }) => {
      const { policy } = await withPodnet(context, options, (podnet, signal) =>
        podnet.policies.get({ name }, { signal }),
      );
      await printDocument(context.io, options.output, policy?.document ?? {});
    });
}

interface DeleteOptions extends OutputOptions {
  readonly plan?: boolean;
}

function addDelete(group: Command, context: Context): void {
  addOutput(
    group
      .command("delete")
      .description("delete policies; their pods may do again what no other policy denies"),
  )
    .argument("<name...>", "the policies")
    .option("--plan", "show what it would open or close for whom; nothing changes")
    .action(async (names: readonly string[], options: DeleteOptions) => {
      const planOnly = options.plan === true;
      const effects: PolicyEffect[] = [];
      await withPodnet(context, options, async (podnet, signal) => {
        for (const name of names) {
          const answer = await podnet.policies.delete({ name, planOnly }, { signal });
          if (!answer.existed) context.io.stderr.write(`There was no policy ${harmless(name)}\n`);
          effects.push(...answer.effects);
        }
      });
      if (planOnly) await printEffects(context, options, effects);
    });
}

async function printEffects(
  { io }: Context,
  { output }: OutputOptions,
  effects: readonly PolicyEffect[],
): Promise<void> {
  if (output !== "table") {
    const items = effects.map((each) => toPlain(PolicyEffectSchema, each));
    await printDocument(io, output, document("PolicyEffectList", { items }));
    return;
  }
  if (effects.length === 0) {
    io.stderr.write("It would open and close nothing\n");
    return;
  }
  const rows = effects.map(({ pod, container, direction, change, rule }) =>
    [pod || container, direction, change, rule].map(harmless),
  );
  io.stdout.write(table(["POD", "DIRECTION", "CHANGE", "RULE"], rows));
}
