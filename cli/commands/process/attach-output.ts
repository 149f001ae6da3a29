import type { Command } from "commander";
import type { CommonOptions, Context } from "../../context.ts";
import { runAttached } from "./attached.ts";

interface Options extends CommonOptions {
  readonly stdin: boolean;
}

const more = `
Prints what it writes from now on, passes on input and signals, and exits with its exit code, as docker attach does. A
third ctrl-c leaves it running, unless it has a terminal.

Examples:
  podnet attach-output web
  podnet attach-output --no-stdin web`;

export function addAttachOutput(program: Command, context: Context): void {
  program
    .command("attach-output")
    .description("follow the main process of a pod, and give it input")
    .argument("<pod>", "name or id")
    .option("--no-stdin", "do not pass standard input on")
    .addHelpText("after", more)
    .action(async (idOrName: string, options: Options) => {
      const { io } = context;
      using podnet = await io.connect(options);
      const { pod } = await podnet.pods.get({ idOrName });
      const { terminal = false } = pod?.process ?? {};
      context.exitCode = await runAttached(io, podnet, {
        idOrName: pod?.id ?? idOrName,
        fromStart: false,
        terminal,
        interactive: options.stdin && pod?.spec?.process?.stdin === true,
      });
    });
}
