import type { Command } from "commander";
import { addOutput, type Context, type OutputOptions } from "../../context.ts";
import { askForPod } from "../../pod-answer.ts";

interface Options extends OutputOptions {
  readonly force: boolean;
}

const more = `
The pod keeps its addresses and can be started again: podnet start POD. A paused pod is resumed to power off.
Stopping a stopped pod succeeds.`;

export function addStop(program: Command, context: Context): void {
  addOutput(program.command("stop").description("power off a pod's guest, and keep the pod"))
    .argument("<pod>", "name or id")
    .option("-f, --force", "do not wait for the guest", false)
    .addHelpText("after", more)
    .action((idOrName: string, options: Options) =>
      askForPod(context, options, (pods, signal) =>
        pods.stop({ idOrName, force: options.force }, { signal }),
      ),
    );
}
