import type { Command } from "commander";
import { type CommonOptions, type Context, withPodnet } from "../context.ts";
import { harmless } from "../views/text.ts";

interface Options extends CommonOptions {
  readonly force?: boolean;
}

const examples = `
The VM runs on, without podnet's NICs. Detaching a pod that does not exist succeeds.

Examples:
  podnet detach db
  podnet detach --force db      one whose machine or guest does not answer`;

export function addDetach(program: Command, context: Context): void {
  program
    .command("detach")
    .description("remove podnet's NICs from a foreign VM, and delete the pod")
    .argument("<pod>", "name or id")
    .option("-f, --force", "go on past what cannot be taken back")
    .addHelpText("after", examples)
    .action(async (idOrName: string, options: Options) => {
      const { existed, name } = await withPodnet(context, options, (podnet, signal) =>
        podnet.pods.detach({ idOrName, force: options.force === true }, { signal }),
      );
      const text = existed ? `Detached ${name || idOrName}` : `${idOrName} is gone already`;
      context.io.stdout.write(`${harmless(text)}\n`);
    });
}
