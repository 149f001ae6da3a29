import type { Command } from "commander";
import { addOutput, type Context, type OutputOptions } from "../../context.ts";
import { askForPods } from "../../pod-answer.ts";

interface Options extends OutputOptions {
  readonly force: boolean;
}

const more = `
The pod keeps its addresses and can be started again: podnet start POD. A paused pod is resumed to power off.
Stopping a stopped pod succeeds.`;

export function addStop(program: Command, context: Context): void {
  addOutput(program.command("stop").description("power off the guests of pods, and keep the pods"))
    .argument("<pods...>", "names or ids")
    .option("-f, --force", "do not wait for the guest", false)
    .addHelpText("after", more)
    .action((named: string[], options: Options) =>
      askForPods(context, options, named, (pods, idOrName, signal) =>
        pods.stop({ idOrName, force: options.force }, { signal }),
      ),
    );
}
