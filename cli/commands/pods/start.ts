import type { Command } from "commander";
import { addOutput, type Context, type OutputOptions } from "../../context.ts";
import { askForPods } from "../../pod-answer.ts";

export function addStart(program: Command, context: Context): void {
  addOutput(
    program
      .command("start")
      .description("start stopped or failed pods again, with their addresses"),
  )
    .argument("<pods...>", "names or ids")
    .action((named: string[], options: OutputOptions) =>
      askForPods(context, options, named, (pods, idOrName, signal) =>
        pods.start({ idOrName }, { signal }),
      ),
    );
}
