import type { Command } from "commander";
import { isPodnetError } from "../../core/errors.ts";
import { addOutput, type Context, type OutputOptions, withPodnet } from "../context.ts";
import { document, printDocument } from "../output.ts";
import { version } from "../../api/version.ts";

export function addVersion(program: Command, context: Context): void {
  addOutput(
    program.command("version").description("show the versions of podnet and podnetd"),
  ).action(async (options: OutputOptions) => {
    const { io } = context;
    const client = version;
    const daemon = await daemonVersion(context, options);
    if (options.output !== "table") {
      const body = { client, daemon: daemon ?? "" };
      await printDocument(io, options.output, document("Version", body));
      return;
    }
    io.stdout.write(`podnet  ${client}\npodnetd ${daemon ?? "does not answer"}\n`);
  });
}

/** A podnetd that is not there is known at once; one that is may be slow, on a host under load. */
const answerMs = 20_000;

/** The daemon's version; undefined when no daemon answers, which is not an error here. */
async function daemonVersion(
  context: Context,
  options: OutputOptions,
): Promise<string | undefined> {
  try {
    return await withPodnet(context, options, async (podnet, signal) => {
      const { version } = await podnet.node.info({}, { signal, timeoutMs: answerMs });
      return version;
    });
  } catch (thrown) {
    if (isPodnetError(thrown, "DAEMON_UNREACHABLE", "DEADLINE_EXCEEDED")) return undefined;
    throw thrown;
  }
}
