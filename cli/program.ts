import { Command, CommanderError } from "commander";
import { version } from "../api/version.ts";
import { addApply } from "./commands/apply/apply.ts";
import { addAttach } from "./commands/attach.ts";
import { addCni } from "./commands/cni.ts";
import { addConsole } from "./commands/console.ts";
import { addCopy } from "./commands/cp.ts";
import { addCreate } from "./commands/pods/create.ts";
import { addDelete } from "./commands/pods/delete.ts";
import { addDetach } from "./commands/detach.ts";
import { addDiff } from "./commands/pods/diff.ts";
import { addBugreport } from "./commands/host/bugreport.ts";
import { addDoctor } from "./commands/host/doctor.ts";
import { addDown } from "./commands/down.ts";
import { addExec } from "./commands/exec.ts";
import { addExecs } from "./commands/execs.ts";
import { addExplain } from "./commands/explain.ts";
import { addGet } from "./commands/pods/get.ts";
import { addRun } from "./commands/process/run.ts";
import { addWait } from "./commands/process/wait.ts";
import { addAttachOutput } from "./commands/process/attach-output.ts";
import { addImage } from "./commands/image/image.ts";
import { addLogLevel } from "./commands/host/log-level.ts";
import { addInfo } from "./commands/info.ts";
import { addDisk } from "./commands/pods/disk.ts";
import { addInterface } from "./commands/interface.ts";
import { addLimit } from "./commands/limit.ts";
import { addList } from "./commands/pods/list.ts";
import { addLogs } from "./commands/logs.ts";
import { addNetwork } from "./commands/network.ts";
import { addGuard } from "./commands/policy/guard.ts";
import { addTrace } from "./commands/policy/trace.ts";
import { addPolicy } from "./commands/policy/policy.ts";
import { addNodes } from "./commands/nodes.ts";
import { addOverlay } from "./commands/overlay.ts";
import { addService } from "./commands/service/service.ts";
import { addStart } from "./commands/pods/start.ts";
import { addPool } from "./commands/pool.ts";
import { addPorts } from "./commands/ports.ts";
import { addPublish, addUnpublish } from "./commands/publish.ts";
import { addUi } from "./commands/ui.ts";
import { addVerify } from "./commands/verify.ts";
import { addVersion } from "./commands/version.ts";
import { addWatch } from "./commands/pods/watch.ts";
import { addPause, addResume } from "./commands/pods/pause.ts";
import { addRename } from "./commands/pods/rename.ts";
import { addRestart } from "./commands/pods/restart.ts";
import { addShell } from "./commands/shell.ts";
import { addStop } from "./commands/pods/stop.ts";
import { addLabel } from "./commands/pods/label.ts";
import { addTop } from "./commands/pods/top.ts";
import { addUpdate } from "./commands/pods/update.ts";
import { addStats } from "./commands/stats.ts";
import { addCapture } from "./commands/capture.ts";
import { commandTrace } from "./command-trace.ts";
import { addCompletion } from "./complete/completion.ts";
import { type Context, contextOf } from "./context.ts";
import { isPodnetError } from "../core/errors.ts";
import { exitCodeOf, exitCodes } from "./exit-codes.ts";
import type { Io } from "./io.ts";
import type { Format } from "./output.ts";
import { commandAt, helpBehind, withHint, wrongInGroup } from "./mistyped.ts";
import { report } from "./views/report.ts";

const about = `podnet gives microVM pods their network.

Commands talk to podnetd over its unix socket: --socket, else PODNET_SOCKET, else /run/podnet/podnet.sock.
Over TCP: --url or PODNET_URL, with PEM files in PODNET_TLS_CA, PODNET_TLS_CERT and PODNET_TLS_KEY.`;

const epilogue = `
Examples:
  podnet create web                   one pod on the default network
  podnet list                         what there is
  podnet shell web                    a shell in it
  podnet delete web

Exit codes: 0 done, 1 failed, 2 wrong usage, 3 podnetd unreachable, 4 not found, 5 conflict,
6 the host is not ready, 124 timed out, 128+n ended by signal n.`;

/** Builds the command tree. Actions put their exit code into `context`. */
export function buildProgram(context: Context): Command {
  const { io } = context;
  const program = new Command("podnet");
  program
    .description(about)
    .version(version, "-V, --version", "print podnet's version")
    .helpOption("-h, --help", "show help")
    .helpCommand(true)
    .enablePositionalOptions()
    .showSuggestionAfterError()
    .exitOverride()
    .configureOutput({
      writeOut: (text) => void io.stdout.write(text),
      writeErr: (text) => void io.stderr.write(text),
      outputError: (text, write) => write(withHint(text, context.typing)),
      getOutHelpWidth: () => io.stdout.columns ?? 100,
      getErrHelpWidth: () => io.stderr.columns ?? 100,
      getOutHasColors: () => io.stdout.isTTY === true,
      getErrHasColors: () => io.stderr.isTTY === true,
    })
    .addHelpText("after", epilogue);
  addTarget(program);
  for (const add of [
    addCreate,
    addGet,
    addList,
    addStart,
    addStop,
    addRestart,
    addPause,
    addResume,
    addUpdate,
    addLabel,
    addRename,
    addApply,
    addDelete,
    addAttach,
    addDetach,
    addWatch,
    addRun,
    addWait,
    addAttachOutput,
    addExec,
    addShell,
    addExecs,
    addConsole,
    addLogs,
    addCopy,
    addStats,
    addTop,
    addCapture,
    addInterface,
    addDisk,
    addLimit,
    addPublish,
    addUnpublish,
    addPorts,
    addVerify,
    addNetwork,
    addPolicy,
    addService,
    addGuard,
    addTrace,
    addNodes,
    addOverlay,
    addPool,
    addImage,
    addCni,
    addInfo,
    addLogLevel,
    addExplain,
    addDoctor,
    addBugreport,
    addDiff,
    addUi,
    addDown,
    addVersion,
    addCompletion,
  ]) {
    add(program, context);
  }
  for (const command of program.commands) addCommon(command);
  return program;
}

/** The options that every command has. Of a group its commands have them. */
function addCommon(command: Command, path = command.name()): void {
  for (const each of command.commands) addCommon(each, `${path} ${each.name()}`);
  addTarget(command.optionsGroup("Options:"));
  if (command.commands.length > 0) return;
  command.showHelpAfterError(`Try: podnet ${path} --help`).helpOption("-h, --help", "show help");
}

/** Where podnetd is: before the command, or behind it. */
const addTarget = (command: Command): Command =>
  command
    .option("--socket <path>", "podnetd's unix socket")
    .option("--url <url>", "https://HOST:PORT of a podnetd on TCP");

/** Gives a command what was given before it, unless it has either itself. */
function inheritTarget(action: Command): void {
  const keys = ["socket", "url"];
  const isGiven = (command: Command): boolean =>
    keys.some((key) => command.getOptionValueSource(key) === "cli");
  for (let at: Command | null = action; at !== null; at = at.parent) {
    if (!isGiven(at)) continue;
    if (at === action) return;
    for (const key of keys)
      action.setOptionValueWithSource(key, at.getOptionValue(key), at.getOptionValueSource(key));
    return;
  }
}

/**
 * The value of `-o`, read before the arguments are parsed, so that parse errors are printed in the
 * requested format.
 */
function formatOf(command: string, args: readonly string[]): Format {
  // Arguments behind `exec POD` belong to the guest.
  if (command === "exec") return "table";
  const end = args.indexOf("--");
  const own = end < 0 ? args : args.slice(0, end);
  const wanted = own.flatMap((arg, i) => {
    const joined = /^(?:-o|--output=)(json|yaml|table)$/.exec(arg)?.[1];
    return joined ?? (arg === "-o" || arg === "--output" ? (own[i + 1] ?? []) : []);
  });
  return wanted.at(-1) === "json" ? "json" : "table";
}

const endless: ReadonlySet<string> = new Set(["watch", "console", "logs", "stats", "top", "ui"]);

/** Runs one command line, without the program's name, and returns the exit code. Never throws. */
export function run(args: readonly string[], io: Io): Promise<number> {
  const context = contextOf(io);
  return runProgram(buildProgram(context), context, args);
}

/** As `run`, with a program that was built for this context, and that runs once. */
export async function runProgram(
  program: Command,
  context: Context,
  args: readonly string[],
): Promise<number> {
  const { io } = context;
  const trace = commandTrace(io.env);
  if (trace === undefined) return runTree(program, context, args);
  let command = program.name();
  program.hook("preAction", (_program, action) => {
    command = pathOf(action);
  });
  io.trace = trace;
  const code = await runTree(program, context, args);
  await trace.end(command, code);
  return code;
}

/** A command with those that it is below: `podnet network create`. */
const pathOf = (command: Command): string =>
  command.parent === null ? command.name() : `${pathOf(command.parent)} ${command.name()}`;

async function runTree(
  program: Command,
  context: Context,
  given: readonly string[],
): Promise<number> {
  const args = helpBehind(program, given);
  const { command: typing } = commandAt(program, args);
  context.typing = typing;
  const name = typing.name();
  const wrong = wrongInGroup(program, args);
  if (wrong !== undefined) {
    context.io.stderr.write(wrong);
    return exitCodes.usage;
  }
  program.hook("preAction", (_program, action) => {
    context.command = action;
    inheritTarget(action);
  });
  try {
    await program.parseAsync([...args], { from: "user" });
    return context.exitCode;
  } catch (thrown) {
    // Commander has printed its message; asking for help is not an error.
    if (thrown instanceof CommanderError) {
      return thrown.exitCode === 0 ? exitCodes.ok : exitCodes.usage;
    }
    // Interrupting an endless stream is its normal end, not an error.
    if (endless.has(name) && isPodnetError(thrown, "CANCELLED")) return exitCodeOf(thrown);
    const code = report(context, thrown, formatOf(name, args));
    const isPlain = code === exitCodes.usage || code === exitCodes.timeout;
    // A program that could not be started has its exit code.
    if (context.exitCode !== exitCodes.ok) return context.exitCode;
    const ofProgram = ["exec", "shell", "run"].includes(name);
    return ofProgram && !isPlain ? exitCodes.exec : code;
  }
}
