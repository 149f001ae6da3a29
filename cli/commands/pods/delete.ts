import type { Command } from "commander";
import type { Podnet } from "../../../api/client.ts";
import { isPodnetError } from "../../../core/errors.ts";
import { type CommonOptions, type Context, withPodnet } from "../../context.ts";
import type { Io } from "../../io.ts";
import { report } from "../../views/report.ts";
import { usage } from "../../usage.ts";
import { harmless } from "../../views/text.ts";

interface Options extends CommonOptions {
  readonly all?: boolean;
  readonly force?: boolean;
}

const examples = `
Deleting what is not there succeeds, so a script may run twice.

Examples:
  podnet delete web db
  podnet delete --force web     one whose guest or VM does not answer
  podnet delete --all`;

export function addDelete(program: Command, context: Context): void {
  program
    .command("delete")
    .alias("rm")
    .description("delete pods and release their addresses")
    .argument("[pods...]", "names or ids")
    .option("-f, --force", "do not wait for the guest, and continue if something cannot be undone")
    .option("-a, --all", "every pod")
    .addHelpText("after", examples)
    .action(async (pods: string[], options: Options) => {
      if (pods.length > 0 === (options.all === true)) {
        throw usage("No pod is named", "Name pods to delete, or give --all and no names");
      }
      await withPodnet(context, options, async (podnet, signal) => {
        const named =
          options.all === true
            ? (await podnet.pods.list({}, { signal })).pods.map((pod) => pod.name)
            : pods;
        // One that fails does not keep the others; the last failure decides the exit code.
        for (const idOrName of named) {
          await deleteOne(context, podnet, idOrName, options.force === true, signal);
        }
      });
    });
}

async function deleteOne(
  context: Context,
  podnet: Podnet,
  idOrName: string,
  force: boolean,
  signal: AbortSignal,
): Promise<void> {
  try {
    const { existed, name } = await podnet.pods.delete({ idOrName, force }, { signal });
    print(
      context.io,
      existed ? `Deleted ${name === "" ? idOrName : name}` : `${idOrName} is gone already`,
    );
  } catch (thrown) {
    if (isPodnetError(thrown, "DAEMON_UNREACHABLE", "CANCELLED")) throw thrown;
    context.exitCode = report(context, thrown, "table");
  }
}

const print = (io: Io, text: string): void => void io.stdout.write(`${harmless(text)}\n`);
