import type { Command } from "commander";
import { servePage } from "../../ui/server/serve-page.ts";
import { type CommonOptions, type Context, withPodnet } from "../context.ts";
import { parseCount } from "../parse.ts";
import { usage } from "../usage.ts";

interface Options extends CommonOptions {
  readonly port?: string;
  readonly listen?: string;
  readonly allowChanges?: boolean;
}

const more = `
The page shows networks and their addresses, pods with their rates and consoles, policies, events and the host.
It is served on 127.0.0.1 alone. The address opens it once, in one browser. The page has your rights, and only looks
unless --allow-changes is given. For a page on another machine, forward the port by ssh:
  ssh -L 7700:127.0.0.1:7700 HOST podnet ui --port 7700
Other users of that machine cannot reach a socket:
  ssh -L 7700:/root/page.sock HOST podnet ui --listen /root/page.sock`;

export function addUi(program: Command, context: Context): void {
  program
    .command("ui")
    .description("show pods and networks in a browser, until interrupted")
    .option("--port <port>", "port of 127.0.0.1; default a free one")
    .option("--listen <path>", "a unix socket instead, which is made, for you alone")
    .option("--allow-changes", "the page may start, stop, pause and resume pods")
    .addHelpText("after", more)
    .action((options: Options) =>
      withPodnet(context, options, async (podnet, signal) => {
        const { allowChanges = false, port: asked = "0" } = options;
        if (options.listen !== undefined && options.port !== undefined)
          throw usage("The page is either at a port or at a socket", "Give --port or --listen");
        const listen =
          options.listen ?? parseCount("--port", asked, options.port === undefined ? 0 : 1);
        // A first call, so that a podnetd that does not answer is reported here.
        await podnet.node.info({}, { signal });
        await using page = await servePage({ podnet, listen, allowChanges });
        context.io.stdout.write(`The page: ${page.url}\n`);
        await new Promise<void>((resolve) => {
          signal.addEventListener("abort", () => resolve(), { once: true });
        });
      }),
    );
}
