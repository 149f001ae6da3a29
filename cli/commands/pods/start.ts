import type { Command } from "commander";
import { addOutput, type Context, type OutputOptions } from "../../context.ts";
import { askForPod } from "../../pod-answer.ts";

export function addStart(program: Command, context: Context): void {
  addOutput(
    program.command("start").description("start a stopped or failed pod again, with its addresses"),
  )
    .argument("<pod>", "name or id")
    .action((idOrName: string, options: OutputOptions) =>
      askForPod(context, options, (pods, signal) => pods.start({ idOrName }, { signal })),
    );
}
