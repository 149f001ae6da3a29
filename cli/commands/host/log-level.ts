import { Argument, type Command } from "commander";
import { addOutput, type Context, type OutputOptions, withPodnet } from "../../context.ts";
import { document, printDocument } from "../../output.ts";
import { harmless } from "../../views/text.ts";

const more = `
Lines of this level and above are logged. The level holds until podnetd ends; log_level of the configuration is for its
next start. For administrators.

Examples:
  podnet log-level                what it is now
  podnet log-level debug          more, while you look for a fault
  podnet log-level info`;

/** `podnet log-level`. */
export function addLogLevel(program: Command, context: Context): void {
  addOutput(program.command("log-level").description("show or change what podnetd logs"))
    .addArgument(
      new Argument("[level]", "the level; none shows it").choices([
        "trace",
        "debug",
        "info",
        "warn",
        "error",
      ]),
    )
    .addHelpText("after", more)
    .action(async (wanted: string | undefined, options: OutputOptions) => {
      const { io } = context;
      const { level, configured } = await withPodnet(context, options, (podnet, signal) =>
        podnet.node.logLevel({ level: wanted ?? "" }, { signal }),
      );
      if (options.output !== "table") {
        await printDocument(io, options.output, document("LogLevel", { level, configured }));
        return;
      }
      const next = level === configured ? "" : `; ${configured} after a restart`;
      io.stdout.write(`${harmless(`${level}${next}`)}\n`);
    });
}
