import type { Command } from "commander";
import { addOutput, type Context, type OutputOptions } from "../context.ts";
import { askForPod } from "../pod-answer.ts";

interface Options extends OutputOptions {
  readonly force: boolean;
}

const more = `
The pod keeps its addresses and can be started again: podnet start POD. One that is paused is resumed to power off.
A pod that is stopped already is left as it is.`;

export function addStop(program: Command, context: Context): void {
  addOutput(program.command("stop").description("power a pod's guest off and keep the pod"))
    .argument("<pod>", "name or id")
    .option("-f, --force", "do not wait for the guest", false)
    .addHelpText("after", more)
    .action((idOrName: string, options: Options) =>
      askForPod(context, options, (pods, signal) =>
        pods.stop({ idOrName, force: options.force }, { signal }),
      ),
    );
}
