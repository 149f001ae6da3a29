import type { Command } from "commander";
import { addOutput, type Context, type OutputOptions } from "../../context.ts";
import { askForPods } from "../../pod-answer.ts";

interface Options extends OutputOptions {
  readonly force: boolean;
}

const more = `
Stops each pod and starts it again: it keeps its addresses, and its VM boots anew. A stopped or failed pod is started.

Examples:
  podnet restart web
  podnet restart --force web     one whose guest does not answer`;

export function addRestart(program: Command, context: Context): void {
  addOutput(program.command("restart").description("stop pods and start them again"))
    .argument("<pods...>", "names or ids")
    .option("-f, --force", "do not wait for the guest to power off", false)
    .addHelpText("after", more)
    .action((named: string[], { force, ...options }: Options) =>
      askForPods(context, options, named, async (pods, idOrName, signal) => {
        await pods.stop({ idOrName, force }, { signal });
        return pods.start({ idOrName }, { signal });
      }),
    );
}
