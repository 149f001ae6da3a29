import type { MessageInitShape } from "@bufbuild/protobuf";
import type { Command } from "commander";
import type { Podnet } from "../../api/client.ts";
import type {
  ConsoleResponse,
  OpenConsoleRequestSchema,
} from "../../api/gen/podnet/v1/pod_service_pb.ts";
import { isPodnetError } from "../../core/errors.ts";
import { type CommonOptions, type Context, withPodnet } from "../context.ts";
import { DetachWatch, keysOf } from "../detach-keys.ts";
import type { Io } from "../io.ts";
import { parseCount } from "../parse.ts";
import { Queue } from "../../core/queue.ts";
import { screen } from "../views/screen.ts";
import { rawMode, tamed, write } from "../terminal.ts";

interface Options extends CommonOptions {
  readonly follow: boolean;
  readonly stdin: boolean;
  readonly detachKeys: string;
  readonly tail?: string;
  readonly raw: boolean;
}

type Message = MessageInitShape<typeof OpenConsoleRequestSchema>;
interface Request {
  readonly idOrName: string;
  readonly noFollow: boolean;
  readonly tailBytes: number;
}

const more = `
On a terminal, what you type goes to the console until you press the detach keys; the pod runs on. Only one client can type
at a time. With --no-stdin, or if standard input is no terminal, you only read, and ctrl-c ends it. For a shell of your own,
use: podnet exec -it POD sh
On a terminal, escape sequences that control more than the screen are shown as \\u001b and the like, unless --raw is given.

Examples:
  podnet console web
  podnet console --detach-keys ctrl-a,d web
  podnet console --no-follow --tail 4096 web`;

export function addConsole(program: Command, context: Context): void {
  program
    .command("console")
    .description("connect to a pod's serial console: print its kept output, follow it, and type")
    .argument("<pod>", "name or id")
    .option("--no-stdin", "do not type, only read")
    .option("--no-follow", "end after the kept output")
    .option("--tail <bytes>", "at most this much of the kept output")
    .option("--detach-keys <keys>", "keys that leave it; none if empty", "ctrl-p,ctrl-q")
    .option("--raw", "hand a terminal all the guest prints, and with it to the guest", false)
    .addHelpText("after", more)
    .action(async (idOrName: string, options: Options) => {
      const { io } = context;
      const keys = keysOf(options.detachKeys);
      const request = {
        idOrName,
        noFollow: !options.follow,
        tailBytes: options.tail === undefined ? 0 : parseCount("--tail", options.tail, 1),
      };
      const types = options.stdin && options.follow && io.stdin.isTTY === true;
      await withPodnet(context, options, async (podnet, signal) => {
        if (types) return converse(io, podnet, request, { keys, options, signal });
        const fit = io.stdout.isTTY === true && !options.raw ? tamed() : undefined;
        await show(io, podnet.pods.console(request, { signal }), fit);
      });
    });
}

async function show(
  io: Io,
  console: AsyncIterable<ConsoleResponse>,
  fit: ((data?: Uint8Array) => Uint8Array) | undefined,
): Promise<void> {
  for await (const { data } of console) await write(io.stdout, fit?.(data) ?? data);
  if (fit !== undefined) await write(io.stdout, fit());
}

/**
 * The terminal is the console's until it ends, is left, or a signal comes; then it is as it was
 * before.
 */
async function converse(
  io: Io,
  podnet: Podnet,
  request: Request,
  how: {
    readonly keys: readonly number[];
    readonly options: Options;
    readonly signal: AbortSignal;
  },
): Promise<void> {
  const { keys, options, signal } = how;
  const input = new Queue<Message>();
  input.push({ input: { case: "open", value: request } });
  const left = new AbortController();
  const ended = AbortSignal.any([signal, left.signal]);
  const fit = options.raw ? undefined : screen();
  try {
    using stack = new DisposableStack();
    stack.use(io.onSignal("SIGHUP", () => left.abort()));
    stack.use(rawMode(io.stdin));
    stack.use(passKeys(io, input, new DetachWatch(keys), left));
    stack.defer(() => input.end());
    if (keys.length > 0) io.stderr.write(`${options.detachKeys} detaches\r\n`);
    await show(io, podnet.pods.openConsole(input, { signal: ended }), fit);
  } catch (thrown) {
    if (!left.signal.aborted || !isPodnetError(thrown, "CANCELLED")) throw thrown;
    io.stderr.write(`\nDetached from ${request.idOrName}; it runs on\n`);
    return;
  }
  io.stderr.write(`\nThe console of ${request.idOrName} has ended\n`);
}

/**
 * Most input that may wait for a console that does not read it. More is dropped: keys have to be
 * read on, or detaching would be impossible.
 */
const mostTyped = 1 << 20;

function passKeys(
  io: Io,
  input: Queue<Message>,
  watch: DetachWatch,
  left: AbortController,
): Disposable {
  const { stdin } = io;
  let waiting = 0;
  input.onDrain = () => {
    waiting = 0;
  };
  const onData = (data: Uint8Array | string): void => {
    const { pass, detached } = watch.feed(Buffer.from(data as Uint8Array));
    waiting += pass.length;
    if (waiting > mostTyped) io.stderr.write("\u0007");
    else if (pass.length > 0) input.push({ input: { case: "data", value: pass } });
    if (detached) left.abort();
  };
  const onEnd = (): void => left.abort();
  stdin.on("data", onData).on("end", onEnd);
  return {
    [Symbol.dispose]() {
      input.onDrain = undefined;
      stdin.off("data", onData).off("end", onEnd);
      stdin.pause();
    },
  };
}
