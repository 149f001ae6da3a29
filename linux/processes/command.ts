import { accessSync, constants, statSync } from "node:fs";
import { basename, delimiter, join } from "node:path";
import { ExecaError, execa } from "execa";
import { limited } from "../../core/aborting.ts";
import { performAsync } from "../../core/effect.ts";
import { PodnetError } from "../../core/errors.ts";
import { printable } from "../../core/names.ts";
import { errnoHint } from "../syscall-error.ts";
import { closeOutputs, endGroup, graceMs } from "./command-end.ts";

export interface RunOptions {
  /** Text for the command's standard input; empty by default. */
  readonly stdin?: string;
  readonly signal?: AbortSignal;
  /** Milliseconds until the command is ended; 30 s unless given. */
  readonly timeoutMs?: number;
  /**
   * Added to this process's environment. `LC_ALL=C` is always set, so that messages can be
   * compared.
   */
  readonly env?: Readonly<Record<string, string>>;
  /** Exit codes that are no failure; 0 unless given. */
  readonly okCodes?: readonly number[];
  /**
   * Characters that each of its outputs may have; a command that goes beyond is ended, and has
   * failed.
   */
  readonly maxOutput?: number;
  /** Called with the pid of the process, which leads its group, as soon as it starts. */
  readonly started?: (pid: number) => void;
}

export interface CommandResult {
  readonly stdout: string;
  readonly stderr: string;
  readonly exitCode: number;
}

// A service's PATH may lack the system directories, where ip and iptables live.
const systemDirectories = ["/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/bin", "/bin"];

/**
 * Path of a program on PATH or in the system's own directories; undefined when it is not installed.
 */
export function findProgram(name: string): string | undefined {
  const path = (process.env["PATH"] ?? "").split(delimiter).filter((directory) => directory !== "");
  for (const directory of [...path, ...systemDirectories]) {
    const candidate = join(directory, name);
    try {
      accessSync(candidate, constants.X_OK);
      // A directory is "executable" too.
      if (statSync(candidate).isFile()) return candidate;
    } catch {}
  }
  return undefined;
}

/**
 * Runs a command to its end, without a shell, and returns its output, unchanged, as text.
 *
 * Throws `COMMAND_FAILED` when it is not installed, ends with an exit code not in `okCodes` or by a
 * signal (details: `argv`, `exitCode` or `signal`, `stderr`), `DEADLINE_EXCEEDED` after
 * `timeoutMs`, `CANCELLED` when `signal` aborts. A command that is ended gets SIGTERM, and SIGKILL
 * half a second later; both go to its process group, which includes its children. Its outputs are
 * not waited for longer than that, even if another process holds them open.
 */
export async function run(
  argv: readonly [string, ...string[]],
  options: RunOptions = {},
): Promise<CommandResult> {
  const [name, ...args] = argv;
  const program = name.includes("/") ? name : findProgram(name);
  if (program === undefined) {
    throw new PodnetError("COMMAND_FAILED", `The command "${name}" is not installed`, {
      hint: `Install the package that holds ${name}`,
      details: { argv: argv.join(" "), errno: "ENOENT" },
    });
  }
  const timeoutMs = options.timeoutMs ?? 30_000;
  const command = async () => {
    const running = execa(program, args, {
      input: options.stdin ?? "",
      env: { ...options.env, LC_ALL: "C" },
      timeout: timeoutMs,
      killDescendants: true,
      forceKillAfterDelay: graceMs,
      stripFinalNewline: false,
      reject: false,
      ...(options.maxOutput === undefined ? {} : { maxBuffer: options.maxOutput }),
      ...(options.signal === undefined ? {} : { cancelSignal: options.signal }),
    });
    if (running.pid !== undefined) options.started?.(running.pid);
    using _ = closeOutputs([running.stdout, running.stderr], timeoutMs, options.signal);
    const result = await running;
    if (running.pid !== undefined && isEnded(result)) await endGroup(running.pid);
    return result;
  };
  const result = await performAsync("command", basename(program), command, () =>
    limited(timeoutMs, options.signal),
  );
  const { stdout, stderr, exitCode } = result;
  if (exitCode !== undefined && !isEnded(result)) {
    if ((options.okCodes ?? [0]).includes(exitCode)) return { stdout, stderr, exitCode };
  }
  throw commandError(argv, result, timeoutMs);
}

interface Outcome {
  readonly exitCode?: number | undefined;
  readonly signal?: string | undefined;
  readonly stderr?: string | undefined;
  readonly timedOut: boolean;
  readonly isCanceled: boolean;
  readonly isMaxBuffer: boolean;
  readonly originalMessage?: string | undefined;
  /** Of one that could not be started. */
  readonly code?: string | undefined;
}

/** Whether it did not end by itself. */
const isEnded = ({ timedOut, isCanceled, isMaxBuffer }: Outcome): boolean =>
  timedOut || isCanceled || isMaxBuffer;

function commandError(argv: readonly string[], outcome: Outcome, timeoutMs: number): PodnetError {
  const stderr = (outcome.stderr ?? "").trim();
  const details = {
    argv: argv.join(" "),
    stderr: stderr.slice(0, 4096),
    ...(outcome.exitCode === undefined ? {} : { exitCode: outcome.exitCode }),
    ...(outcome.signal === undefined ? {} : { signal: outcome.signal }),
  };
  const cause = outcome instanceof ExecaError ? { cause: outcome } : {};
  const name = `"${argv[0]}"`;
  if (outcome.isCanceled)
    return new PodnetError("CANCELLED", `${name} was ended: the caller gave up`, {
      details,
      ...cause,
    });
  if (outcome.timedOut)
    return new PodnetError("DEADLINE_EXCEEDED", `${name} took longer than ${timeoutMs} ms`, {
      details,
      ...cause,
    });
  const hint = errnoHint(outcome.code ?? "");
  if (hint !== undefined)
    return new PodnetError("COMMAND_FAILED", `${name} cannot be started: ${outcome.code}`, {
      hint,
      details: { ...details, errno: outcome.code ?? "" },
      ...cause,
    });
  const ending =
    outcome.exitCode !== undefined
      ? `exit code ${outcome.exitCode}`
      : outcome.signal !== undefined
        ? outcome.signal
        : printable(outcome.originalMessage ?? "unknown reason");
  const said = stderr === "" ? "" : `: ${printable(stderr.split("\n").at(-1) ?? "")}`;
  return new PodnetError("COMMAND_FAILED", `${name} failed with ${ending}${said}`, {
    details,
    ...cause,
  });
}
