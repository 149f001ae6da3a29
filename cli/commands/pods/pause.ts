import type { Command } from "commander";
import { addOutput, type Context, type OutputOptions } from "../../context.ts";
import { askForPod } from "../../pod-answer.ts";

export function addPause(program: Command, context: Context): void {
  addOutput(program.command("pause").description("pause a running pod's processors"))
    .argument("<pod>", "name or id")
    .action((idOrName: string, options: OutputOptions) =>
      askForPod(context, options, (pods, signal) => pods.pause({ idOrName }, { signal })),
    );
}

export function addResume(program: Command, context: Context): void {
  addOutput(program.command("resume").description("resume a paused pod, and set its clock"))
    .argument("<pod>", "name or id")
    .action((idOrName: string, options: OutputOptions) =>
      askForPod(context, options, (pods, signal) => pods.resume({ idOrName }, { signal })),
    );
}
