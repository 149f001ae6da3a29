import type { Command } from "commander";
import type { Context } from "../context.ts";
import { execIn, type ExecOptions } from "./exec.ts";
import { usage } from "../usage.ts";

type Options = Pick<ExecOptions, "socket" | "url" | "user" | "workdir">;

/** bash where the guest has it, else the shell that each Unix has. */
const loginShell = "command -v bash >/dev/null 2>&1 && exec bash -l; exec sh -l";

const more = `
bash if the guest has it, else sh. For one command use podnet exec.

Examples:
  podnet shell web
  podnet shell -u www-data web`;

export function addShell(program: Command, context: Context): void {
  program
    .command("shell")
    .description("open a shell in a pod")
    .argument("<pod>", "name or id")
    .option("-u, --user <user[:group]>", "names or numbers in the guest; default root")
    .option("-w, --workdir <path>", "working directory; default /")
    .addHelpText("after", more)
    .action(async (pod: string, options: Options) => {
      const { io } = context;
      if (io.stdin.isTTY !== true)
        throw usage(
          "Standard input is no terminal",
          `Pass commands on: podnet exec -i ${pod} sh <FILE`,
        );
      await execIn(context, pod, ["sh", "-c", loginShell], {
        ...options,
        interactive: true,
        tty: true,
      });
    });
}
