import type { Command } from "commander";
import { addOutput, type Context, type OutputOptions } from "../../context.ts";
import { askForPods } from "../../pod-answer.ts";

export function addPause(program: Command, context: Context): void {
  addOutput(program.command("pause").description("pause the processors of running pods"))
    .argument("<pods...>", "names or ids")
    .action((named: string[], options: OutputOptions) =>
      askForPods(context, options, named, (pods, idOrName, signal) =>
        pods.pause({ idOrName }, { signal }),
      ),
    );
}

export function addResume(program: Command, context: Context): void {
  addOutput(program.command("resume").description("resume paused pods, and set their clocks"))
    .argument("<pods...>", "names or ids")
    .action((named: string[], options: OutputOptions) =>
      askForPods(context, options, named, (pods, idOrName, signal) =>
        pods.resume({ idOrName }, { signal }),
      ),
    );
}
