import type { MessageInitShape } from "@bufbuild/protobuf";
import type { Command } from "commander";
import type { Podnet } from "../../api/client.ts";
import type { ExecRequestSchema, ExecStartSchema } from "../../api/gen/podnet/v1/pod_service_pb.ts";
import { PodnetError } from "../../core/errors.ts";
import type { CommonOptions, Context } from "../context.ts";
import type { Io } from "../io.ts";
import { environmentOf } from "../env-text.ts";
import { followSize, passInput, passSignals } from "../program-input.ts";
import { collect, parseDuration } from "../parse.ts";
import { Queue } from "../../core/queue.ts";
import { usage } from "../usage.ts";
import { rawMode, sizeOf, write } from "../terminal.ts";

/** Options of the command; those of a shell are among them. */
export interface ExecOptions extends CommonOptions {
  readonly interactive?: boolean;
  readonly tty?: boolean;
  readonly env?: readonly string[];
  readonly envFile?: readonly string[];
  readonly workdir?: string;
  readonly user?: string;
  readonly timeout?: string;
  readonly detach?: boolean;
}

type Message = MessageInitShape<typeof ExecRequestSchema>;
type Start = MessageInitShape<typeof ExecStartSchema>;

const more = `
Write options before the pod's name: everything after it (and after an optional --) is the program with its arguments.
The exit code is the program's own; 128+n if signal n ended it; 125 if podnet itself failed; 126 if the program cannot be
run; 127 if it does not exist; 124 if --timeout ended it.
-e KEY, and a line KEY in a file, take the value of podnet's own environment.

Examples:
  podnet exec web ip addr
  podnet exec -it web sh
  echo hello | podnet exec -i web cat
  podnet exec -u www-data:adm web id
  podnet exec -d --timeout 10m web make
  podnet exec -e LANG=C -w /tmp web ls -l`;

export function addExec(program: Command, context: Context): void {
  program
    .command("exec")
    .description("run a program in a pod")
    .passThroughOptions()
    .argument("<pod>", "name or id")
    .argument("<program...>", "program and its arguments")
    .option("-i, --interactive", "pass standard input on")
    .option("-t, --tty", "give the program a terminal")
    .option("-d, --detach", "do not wait: print the program's id, for podnet execs")
    .option("-u, --user <user[:group]>", "names or numbers in the guest; default root")
    .option("-w, --workdir <path>", "working directory; default /")
    .option("-e, --env <key[=value]>", "an environment variable; may be repeated", collect)
    .option("--env-file <file>", "a file with one on each line; may be repeated", collect)
    .option("--timeout <duration>", "kill the program after it, and exit with 124")
    .addHelpText("after", more)
    .action(async (pod: string, args: string[], options: ExecOptions) => {
      const { io } = context;
      if (options.tty === true && options.interactive === true && io.stdin.isTTY !== true) {
        throw usage("Standard input is no terminal", "Leave out -t");
      }
      // `exec POD -- PROGRAM`, as kubectl has it, works like `exec POD PROGRAM`.
      const words = args[0] === "--" ? args.slice(1) : args;
      if (words.length === 0) throw usage("No program is named", "Write it after the pod's name");
      const { detach = false, interactive = false } = options;
      if (detach && interactive) throw usage("A detached program has no input", "Leave out -i");
      if (!detach) return execIn(context, pod, words, options);
      using podnet = await io.connect(options);
      const { exec } = await podnet.pods.startExec({ start: startOf(io, pod, words, options) });
      io.stdout.write(`${exec?.id ?? ""}\n`);
    });
}

/** Runs a program in a pod to its end; its exit code becomes the command's. */
export async function execIn(
  context: Context,
  pod: string,
  args: string[],
  options: ExecOptions,
): Promise<void> {
  const { io } = context;
  using podnet = await io.connect(options);
  context.exitCode = await runExec(io, podnet, startOf(io, pod, args, options), options);
}

function startOf(io: Io, idOrName: string, args: string[], options: ExecOptions): Start {
  const { tty: terminal = false, workdir = "", user = "", timeout } = options;
  return {
    idOrName,
    args,
    env: {
      ...(terminal ? { TERM: io.env["TERM"] ?? "xterm" } : {}),
      ...environmentOf(options, io.env),
    },
    workdir,
    user,
    terminal,
    ...(terminal ? sizeOf(io.stdout) : {}),
    ...(timeout === undefined ? {} : { timeoutMs: parseDuration("--timeout", timeout) }),
  };
}

async function runExec(
  io: Io,
  podnet: Podnet,
  start: Start,
  options: ExecOptions,
): Promise<number> {
  const terminal = options.tty === true;
  const input = new Queue<Message>();
  input.push({ input: { case: "start", value: start } });
  using stack = new DisposableStack();
  if (terminal && options.interactive === true) stack.use(rawMode(io.stdin));
  if (terminal) stack.use(followSize(io, input));
  const gaveUp = new AbortController();
  stack.use(passSignals(io, input, gaveUp));
  if (options.interactive === true) stack.use(passInput(io, input));
  else input.push({ input: { case: "closeStdin", value: {} } });
  stack.defer(() => input.end());
  for await (const { output } of podnet.pods.exec(input, { signal: gaveUp.signal })) {
    if (output.case === "stdout") await write(io.stdout, output.value);
    if (output.case === "stderr") await write(io.stderr, output.value);
    if (output.case === "exit") return output.value.code;
  }
  throw new PodnetError("AGENT_DISCONNECTED", "The program's end was not reported", {
    hint: "See whether the pod still runs: podnet get",
  });
}
