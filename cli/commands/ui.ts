import type { Command } from "commander";
import { servePage } from "../../ui/server/serve-page.ts";
import { type CommonOptions, type Context, withPodnet } from "../context.ts";
import { parseCount } from "../parse.ts";

interface Options extends CommonOptions {
  readonly port?: string;
  readonly allowChanges?: boolean;
}

const more = `
The page shows networks and their addresses, pods with their rates and consoles, policies, events and the host.
It is served on 127.0.0.1 alone. The address opens it once, in one browser. The page has your rights, and only looks
unless --allow-changes is given. For a page on another machine, forward the port by ssh:
  ssh -L 7700:127.0.0.1:7700 HOST podnet ui --port 7700`;

export function addUi(program: Command, context: Context): void {
  program
    .command("ui")
    .description("show pods and networks in a browser, until interrupted")
    .option("--port <port>", "port of 127.0.0.1; default a free one")
    .option("--allow-changes", "the page may start, stop, pause and resume pods")
    .addHelpText("after", more)
    .action((options: Options) =>
      withPodnet(context, options, async (podnet, signal) => {
        const { allowChanges = false } = options;
        const port = options.port === undefined ? 0 : parseCount("--port", options.port, 1);
        // A first call, so that a podnetd that does not answer is reported here.
        await podnet.node.info({}, { signal });
        await using page = await servePage({ podnet, port, allowChanges });
        context.io.stdout.write(`The page: ${page.url}\n`);
        await new Promise<void>((resolve) => {
          signal.addEventListener("abort", () => resolve(), { once: true });
        });
      }),
    );
}
