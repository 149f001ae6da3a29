import type { Command } from "commander";
import { addOutput, type Context, type OutputOptions } from "../../context.ts";
import { parsePairs } from "../../parse.ts";
import { askForPod } from "../../pod-answer.ts";

const more = `
KEY=VALUE sets a label, KEY- removes one; the others stay. Policies that choose by labels follow at once.

Examples:
  podnet label web role=builder tier=2
  podnet label web tier-`;

export function addLabel(program: Command, context: Context): void {
  addOutput(program.command("label").description("set and remove labels of a pod"))
    .argument("<pod>", "name or id")
    .argument("<change...>", "KEY=VALUE, or KEY-")
    .addHelpText("after", more)
    .action((idOrName: string, changes: readonly string[], options: OutputOptions) => {
      const isRemoval = (each: string): boolean => !each.includes("=") && each.endsWith("-");
      const remove = changes.filter(isRemoval).map((each) => each.slice(0, -1));
      const pairs = changes.filter((each) => !isRemoval(each));
      const set = parsePairs("set", pairs);
      return askForPod(context, options, (pods, signal) =>
        pods.label({ idOrName, set, remove }, { signal }),
      );
    });
}
