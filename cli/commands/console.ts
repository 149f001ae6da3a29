import type { Command } from "commander";
import { type CommonOptions, type Context, withPodnet } from "../context.ts";
import { exitCodes } from "../exit-codes.ts";
import type { Io } from "../io.ts";
import { parseCount } from "../parse.ts";
import { isPodnetError } from "../../core/errors.ts";
import { rawMode, tamed, write } from "../terminal.ts";

interface Options extends CommonOptions {
  readonly follow: boolean;
  readonly tail?: string;
  readonly raw: boolean;
}

const more = `
The console is output alone; for a shell use: podnet exec -it POD sh
To a terminal control characters other than line ends and tabs are shown, \\u001b and the like, unless --raw is given.
On a terminal ctrl-] (or ctrl-c) detaches; the pod runs on.`;

export function addConsole(program: Command, context: Context): void {
  program
    .command("console")
    .description("show a pod's serial console: what is kept of it, then what follows")
    .argument("<pod>", "name or id")
    .option("--no-follow", "end after what is kept")
    .option("--tail <bytes>", "at most this much of what is kept")
    .option("--raw", "hand a terminal all the guest prints, and with it to the guest", false)
    .addHelpText("after", more)
    .action(async (idOrName: string, options: Options) => {
      const { io } = context;
      const request = {
        idOrName,
        noFollow: !options.follow,
        tailBytes: options.tail === undefined ? 0 : parseCount("--tail", options.tail),
      };
      await withPodnet(context, options, async (podnet, signal) => {
        using keys = options.follow ? detachKeys(io) : undefined;
        const ended = keys === undefined ? signal : AbortSignal.any([signal, keys.signal]);
        const fit = io.stdout.isTTY === true && !options.raw ? tamed() : undefined;
        try {
          for await (const { data } of podnet.pods.console(request, { signal: ended })) {
            await write(io.stdout, fit?.(data) ?? data);
          }
          if (fit !== undefined) await write(io.stdout, fit());
        } catch (thrown) {
          if (keys?.signal.aborted !== true || !isPodnetError(thrown, "CANCELLED")) throw thrown;
          io.stderr.write(`\r\nDetached from ${idOrName}; it runs on\r\n`);
          context.exitCode = exitCodes.ok;
        }
      });
    });
}

/** ctrl-] as telnet and virsh have it, and ctrl-c, which raw mode makes a key like any other. */
const detach = new Set([0x1d, 0x03]);

/** Aborts its signal when a detach key is pressed; undefined when no terminal is there to press it on. */
function detachKeys(io: Io): ({ readonly signal: AbortSignal } & Disposable) | undefined {
  const { stdin } = io;
  if (stdin.isTTY !== true) return undefined;
  const controller = new AbortController();
  const raw = rawMode(stdin);
  const onData = (data: Uint8Array | string): void => {
    if (Buffer.from(data as Uint8Array).some((byte) => detach.has(byte))) controller.abort();
  };
  stdin.on("data", onData);
  io.stderr.write("Console output follows; ctrl-] detaches\r\n");
  return {
    signal: controller.signal,
    [Symbol.dispose]() {
      stdin.off("data", onData);
      stdin.pause();
      raw[Symbol.dispose]();
    },
  };
}
