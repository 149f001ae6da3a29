import type { ChildProcess } from "node:child_process";
import type { Readable, Writable } from "node:stream";
import { perform, performAsync } from "../../core/effect.ts";
import { PodnetError } from "../../core/errors.ts";
import type { CgroupPlan, ProcessRecord } from "../driver.ts";
import { networkProgramArgv } from "../jail/argv.ts";
import { removeCgroups } from "../jail/cgroup.ts";
import { findLauncher } from "../jail/launcher.ts";
import { readReport } from "../jail/report.ts";
import {
  firstInheritedFd,
  hasStarted,
  identifyProcess,
  launcherMissing,
  signalProcess,
  spawnStrictly,
} from "./process.ts";
import { killProcess } from "./terminate.ts";

/** A program that works for podnetd on input that may be hostile, and ends with its work. */
export interface WorkerStart {
  /** For messages and failpoints. */
  readonly name: string;
  /** Its command line; paths in it are relative to the directory, where it may write. */
  readonly argv: readonly [string, ...string[]];
  readonly directory: string;
  /** Descriptors that it inherits, from 3 on. */
  readonly fds: readonly number[];
  /** Bytes that each file it writes may have. */
  readonly fileBytes: number;
  /** How it is confined; undefined runs it as podnetd's own user. */
  readonly jail:
    | {
        readonly uid: number;
        readonly files: readonly string[];
        readonly openFiles: number;
        /** Whether it has the host's network, or none. */
        readonly network: boolean;
        /** Processes and threads that its user may have. */
        readonly processes: number;
        /** Groups that are there, with its limits. */
        readonly cgroups: readonly CgroupPlan[];
        /** A directory that it reads, at `treePlace`: all of it that podnetd may read. */
        readonly tree?: string;
      }
    | undefined;
}

/** A worker that runs. */
export interface Worker {
  /** The first of its processes: where it is confined, the others end with it. */
  readonly record: ProcessRecord;
  readonly input: Writable;
  readonly output: Readable;
  /** Resolves with the way it ended and what it wrote to standard error last. */
  readonly ended: Promise<{ readonly how: string; readonly said: string }>;
  /** Ends it with all its processes. */
  kill(): void;
}

const mostSaid = 4096;

/** Starts a worker; resolves when it is executed. Throws `JAIL_FAILED`. */
export async function startWorker(start: WorkerStart): Promise<Worker> {
  const { name, argv, directory, fds, fileBytes, jail } = start;
  const reportFd = firstInheritedFd + fds.length;
  const limits = [
    "prlimit",
    `--fsize=${fileBytes}`,
    ...(jail === undefined ? [] : [`--nproc=${jail.processes}`]),
    "--",
  ];
  const launched =
    jail === undefined
      ? []
      : networkProgramArgv({ launcher: findLauncher(), runDir: directory, reportFd, ...jail });
  const [program = "", ...args] = [...limits, ...launched, ...argv];
  const { promise: ended, resolve } = Promise.withResolvers<Awaited<Worker["ended"]>>();
  const { child, record } = await performAsync("spawn", name, async () => {
    const started = spawnStrictly(program, args, {
      cwd: directory,
      // Its group is ended as one where it is not confined.
      detached: true,
      stdio: ["pipe", "pipe", "pipe", ...fds, ...(jail === undefined ? [] : (["pipe"] as const))],
      env: { PATH: process.env["PATH"] ?? "", LC_ALL: "C" },
    });
    const said = collected(started.stderr);
    started.once("close", (code, signal) =>
      resolve({ how: signal ?? `exit code ${code}`, said: said() }),
    );
    await hasStarted(started, program, launcherMissing);
    const pid =
      jail === undefined
        ? started.pid
        : await executed(started, started.stdio[reportFd] as Readable, name);
    return { child: started, record: identifyProcess(pid as number) };
  });
  const input = child.stdin as Writable;
  // It may end before it has read all.
  input.on("error", () => {});
  const kill = (): void => {
    // A hostile one may have left the group that it was started in (setsid(2)).
    if (jail !== undefined) signalProcess(record, "SIGKILL");
    killGroup(child);
  };
  return { record, input, output: child.stdout as Readable, ended, kill };
}

/**
 * Ends what is left of a worker whose podnetd was killed. Throws `INTERNAL` when it does not end.
 */
export async function endWorker(
  name: string,
  record: ProcessRecord | undefined,
  cgroups: readonly CgroupPlan[],
): Promise<void> {
  if (record !== undefined) await killProcess(record, name, "its files");
  // One that was never recorded is found there.
  await removeCgroups(cgroups);
}

function killGroup(child: ChildProcess): void {
  if (child.pid === undefined || child.exitCode !== null || child.signalCode !== null) return;
  const group = -child.pid;
  try {
    perform("signal", "SIGKILL", () => process.kill(group, "SIGKILL"));
  } catch {
    // It has ended.
  }
}

function collected(stream: Readable | null): () => string {
  let text = "";
  stream?.setEncoding("utf8").on("data", (more: string) => {
    text = (text + more).slice(-mostSaid);
  });
  return () => text;
}

/** Resolves to its pid once it is executed. */
async function executed(child: ChildProcess, report: Readable, name: string): Promise<number> {
  const { pid, ready, error = "it reported no error" } = await readReport(report);
  if (ready && pid !== undefined) return pid;
  killGroup(child);
  throw new PodnetError("JAIL_FAILED", `The program ${name} cannot be confined: ${error}`, {
    hint: "See docs/how-to/confinement.md",
    details: { error },
  });
}
