import { createInterface } from "node:readline/promises";
import type { Command } from "commander";
import { type CommonOptions, type Context, withPodnet } from "../context.ts";
import { exitCodes } from "../exit-codes.ts";
import type { Io } from "../io.ts";
import { usage } from "../usage.ts";
import { harmless } from "../views/text.ts";

interface Options extends CommonOptions {
  readonly plan?: boolean;
  readonly yes?: boolean;
}

const more = `
Deletes every pod, and everything that podnet made on this host (bridges, rules, settings), but nothing else.
Then podnetd ends.`;

export function addDown(program: Command, context: Context): void {
  program
    .command("down")
    .description("delete every pod and undo all that podnet did to the host")
    .option("-y, --yes", "do not ask")
    .option("--plan", "show what would be removed, and remove nothing")
    .addHelpText("after", more)
    .action(async (options: Options) => {
      const { io } = context;
      await withPodnet(context, options, async (podnet, signal) => {
        if (options.plan === true) {
          list(io, (await podnet.node.down({ planOnly: true }, { signal })).removed);
          return;
        }
        if (options.yes !== true) {
          const { removed } = await podnet.node.down({ planOnly: true }, { signal });
          if (!(await confirmed(io, removed, signal))) {
            io.stderr.write("Nothing was removed\n");
            context.exitCode = exitCodes.failed;
            return;
          }
        }
        list(io, (await podnet.node.down({}, { signal })).removed, "Removed ");
      });
    });
}

function list(io: Io, lines: readonly string[], verb = ""): void {
  io.stdout.write(lines.map((line) => `${verb}${harmless(line)}\n`).join(""));
}

async function confirmed(
  io: Io,
  removed: readonly string[],
  signal: AbortSignal,
): Promise<boolean> {
  if (io.stdin.isTTY !== true) {
    throw usage(
      "No terminal to ask for confirmation",
      "Add --yes to remove everything without a question",
    );
  }
  io.stderr.write(removed.map((line) => `  ${harmless(line)}\n`).join(""));
  const lines = createInterface({ input: io.stdin, output: io.stderr });
  try {
    const answer = await lines.question("Remove all of this? [y/N] ", { signal });
    return /^y(?:es)?$/i.test(answer.trim());
  } finally {
    lines.close();
  }
}
