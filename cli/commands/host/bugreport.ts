import { writeFileSync } from "node:fs";
import type { Command } from "commander";
import { archiveOf } from "../../bugreport/archive.ts";
import { gather } from "../../bugreport/gather.ts";
import { type CommonOptions, type Context, withPodnet } from "../../context.ts";
import { usage } from "../../usage.ts";

interface Options extends CommonOptions {
  readonly file?: string;
}

const more = `
Versions, configuration, what podnet doctor finds, pods, networks, plans, drift, events, the log, and podnet's rules,
links and routes; its README.txt says what each file is. Passwords, tokens, keys and environments are left out; names,
addresses and paths are in. Read it before you send it. Works without podnetd, and changes nothing.

Examples:
  podnet bugreport
  podnet bugreport --file /tmp/report.tar.gz`;

export function addBugreport(program: Command, context: Context): void {
  program
    .command("bugreport")
    .description("write what a maintainer wants to know into one file, without secrets")
    .option("--file <path>", "where to; default podnet-bugreport-TIME.tar.gz in this directory")
    .addHelpText("after", more)
    .action(async (options: Options) => {
      const { hostOfCaller } = await import("../../doctor/this-host.ts");
      const now = new Date();
      const name = `podnet-bugreport-${now.toISOString().replaceAll(/[-:]|\.\d+/g, "")}`;
      const file = options.file ?? `${name}.tar.gz`;
      const files = await withPodnet(context, options, (podnet, signal) =>
        gather(hostOfCaller(options, context.io.env), podnet, signal),
      );
      write(file, archiveOf(name, files, now));
      context.io.stdout.write(`${file}\n`);
      context.io.stderr.write("Read it before you send it: names, addresses and paths are in\n");
    });
}

/** For its owner alone. Neither follows a link that stands there, nor overwrites a file. */
function write(file: string, bytes: Uint8Array): void {
  try {
    writeFileSync(file, bytes, { flag: "wx", mode: 0o600 });
  } catch (thrown) {
    const { code = "unknown" } = thrown as NodeJS.ErrnoException;
    throw usage(
      code === "EEXIST" ? `"${file}" exists` : `"${file}" cannot be written (${code})`,
      "Name another file: --file PATH",
    );
  }
}
