import { type ChildProcess, spawn, type SpawnOptions } from "node:child_process";
import type { Readable } from "node:stream";
import { setTimeout as delay } from "node:timers/promises";
import {
  closeSync,
  constants,
  openSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  realpathSync,
} from "node:fs";
import { join } from "node:path";
import { perform, performAsync } from "../../core/effect.ts";
import { isPodnetError, PodnetError } from "../../core/errors.ts";
import { fileError } from "../../linux/syscall-error.ts";
import type { PodId } from "../../core/names.ts";
import { bootId, isSameProcess, processStartTime } from "../../linux/processes/proc.ts";
import { ReportPipe, type Spawned, spawnProcess } from "../../linux/processes/spawn.ts";
import { raiseOomScore } from "../../linux/processes/oom-score.ts";
import type { ProcessRecord, VmPlan, VmRecord } from "../driver.ts";
import { membersOf } from "../jail/cgroup.ts";
import { readReport } from "../jail/report.ts";
import { vmFiles } from "../argv/argv.ts";
import { kindOf } from "../argv/machine-kinds.ts";

/** A QEMU we started ourselves. */
export interface StartedProcess {
  readonly record: VmRecord;
  /** Resolves with the way it ended, at once. */
  readonly ended: Promise<string>;
}

/** The number an inherited descriptor has in QEMU: the first of `StartOptions.fds` is 3. */
export const firstInheritedFd = 3;

export interface StartOptions {
  /**
   * Descriptors QEMU inherits, the i-th as `firstInheritedFd + i`, whatever their numbers here.
   * They stay the caller's to close. Opened again by path they are /proc/self/fd/N.
   */
  readonly fds?: readonly number[];
}

/**
 * Starts QEMU in a session of its own, in the run directory, with its output in a file: it outlives
 * the daemon. With a jail in the plan, `argv` begins with the launcher, which reports on the
 * descriptor after the last of `fds`. Throws `QEMU_MISSING` when the program cannot be run,
 * `JAIL_FAILED` when it cannot be shut in.
 */
export async function startProcess(
  argv: readonly string[],
  plan: VmPlan,
  { fds = [] }: StartOptions = {},
): Promise<StartedProcess> {
  const [program, ...args] = argv;
  const flags = constants.O_WRONLY | constants.O_CREAT | constants.O_APPEND;
  const log = perform("file", `make ${vmFiles.log}`, () =>
    openSync(join(plan.runDir, vmFiles.log), flags, 0o600),
  );
  const jailed = plan.jail !== undefined;
  let child: Spawned | undefined;
  let pid: number | undefined;
  using report = jailed ? new ReportPipe() : undefined;
  try {
    await performAsync("spawn", "qemu", async () => {
      const descriptors = [log, log, ...fds, ...(report?.descriptors ?? [])];
      child = await execute(program as string, args, plan, descriptors);
      report?.handedOver();
      pid = report === undefined ? child.pid : await jailedPid(report.stream);
      // The launcher has done so itself.
      if (!jailed) raiseOomScore(pid);
    });
    const record = identify(pid as number, plan);
    const { ended } = child as unknown as Spawned;
    return { record, ended: jailed ? ended.then((how) => endOf(record, how)) : ended };
  } catch (error) {
    // The process is unknown to the caller, who could not end it.
    child?.kill();
    throw error;
  } finally {
    closeSync(log);
  }
}

/**
 * libc's malloc asks the kernel for huge pages, where the host has them by request (`madvise`): a
 * third fewer page faults until a clone answers. docs/decisions/0156-huge-pages-for-qemus-heap.md.
 */
const hugePages = { GLIBC_TUNABLES: "glibc.malloc.hugetlb=1" };

/** Without a jail, sockets and the pid file get the umask's rights; the launcher has its own. */
async function execute(
  program: string,
  args: readonly string[],
  plan: VmPlan,
  descriptors: readonly number[],
): Promise<Spawned> {
  const env = { PATH: process.env["PATH"] ?? "", LC_ALL: "C", ...hugePages };
  const umask = plan.jail === undefined ? { umask: 0o077 } : {};
  try {
    return await spawnProcess(program, { args, cwd: plan.runDir, env, descriptors, ...umask });
  } catch (thrown) {
    if (isPodnetError(thrown)) throw thrown;
    const otherwise = plan.jail === undefined ? cannotRun(plan) : launcherMissing;
    throw otherwise(program, thrown as Error);
  }
}

/** Sockets and the pid file get the umask's rights. */
export function spawnStrictly(
  program: string,
  args: readonly string[],
  options: SpawnOptions,
): ChildProcess {
  // spawn forks before it returns; a thread that makes a file in between makes it stricter, never
  // laxer.
  const umask = process.umask(0o077);
  try {
    return spawn(program, args, options);
  } finally {
    process.umask(umask);
  }
}

/** Resolves when the program is executed; rejects with what `otherwise` makes of the failure. */
export async function hasStarted(
  child: ChildProcess,
  program: string,
  otherwise: typeof launcherMissing,
): Promise<void> {
  await new Promise<void>((started, failed) => {
    child.once("spawn", started);
    child.once("error", (error) => failed(otherwise(program, error)));
  });
  child.on("error", () => {});
}

const cannotRun =
  (plan: VmPlan) =>
  (program: string, cause: Error): PodnetError =>
    lacking(program, cause) ??
    new PodnetError("QEMU_MISSING", `The program "${program}" cannot be run: ${cause.message}`, {
      hint: `Install it: apt-get install ${kindOf(plan).package}`,
      cause,
    });

/** The host lacks resources to start any program: then the program is assumed to exist. */
function lacking(program: string, cause: Error): PodnetError | undefined {
  const { code = "" } = cause as NodeJS.ErrnoException;
  if (!["EMFILE", "ENFILE", "EAGAIN", "ENOMEM"].includes(code)) return undefined;
  const processes = { hint: "Raise the limit of processes (TasksMax= in the unit, ulimit -u)" };
  return fileError(cause, `Cannot start "${program}"`, code === "EAGAIN" ? processes : {});
}

export const launcherMissing = (program: string, cause: Error): PodnetError =>
  lacking(program, cause) ??
  new PodnetError("JAIL_FAILED", `The launcher "${program}" cannot be run: ${cause.message}`, {
    hint: "Build it: ./scripts/build-jail",
    cause,
  });

/** The pid of a QEMU the launcher has started. */
async function jailedPid(stream: Readable): Promise<number> {
  const { pid, ready, error } = await readReport(stream);
  if (pid !== undefined && ready) return pid;
  throw new PodnetError(
    "JAIL_FAILED",
    `QEMU cannot be confined: ${error ?? "it reported no error"}`,
    {
      hint: 'See docs/how-to/confinement.md; qemu.confine = "off" does without',
      details: { error: error ?? "" },
    },
  );
}

/**
 * The launcher ends right after its QEMU; one that was killed ends before, and its QEMU runs on.
 */
async function endOf(record: VmRecord, how: string): Promise<string> {
  for (;;) {
    try {
      if (!isRunning(record)) return how;
    } catch {
      // A look that fails proves no end.
    }
    await delay(100, undefined, { ref: false });
  }
}

/** The record of a process that was just started. */
export const identifyProcess = (pid: number): ProcessRecord => ({
  pid,
  // A child that has ended already is a zombie until its exit is delivered, and still has a start
  // time.
  startTime: processStartTime(pid) ?? "0",
  bootId: bootId(),
});

function identify(pid: number, { runDir, jail }: VmPlan): VmRecord {
  return {
    ...identifyProcess(pid),
    uid: jail?.uid ?? process.getuid?.() ?? 0,
    runDir,
  };
}

/** Whether the process of a record still runs; never true for another one that got its pid. */
export function isRunning(record: ProcessRecord): boolean {
  return record.bootId === bootId() && isSameProcess(record.pid, record.startTime);
}

/** Sends a signal to the process of a record, unless it has ended. */
export function signalProcess(record: ProcessRecord, signal: "SIGTERM" | "SIGKILL"): void {
  if (!isRunning(record)) return;
  try {
    perform("signal", signal, () => process.kill(record.pid, signal));
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ESRCH") throw error;
  }
}

/**
 * Finds a QEMU of this plan whose record was never written: the daemon died in between. One in a
 * jail is in its control group; any other has the run directory as working directory.
 */
export function findProcess(plan: VmPlan): VmRecord | undefined {
  const runDir = realPath(plan.runDir);
  const { jail } = plan;
  const candidates =
    jail === undefined
      ? readdirSync("/proc").map(Number).filter(Number.isInteger)
      : jail.cgroups.flatMap(({ path }) => membersOf(path));
  for (const pid of candidates) {
    try {
      if (jail === undefined && readlinkSync(`/proc/${pid}/cwd`) !== runDir) continue;
      const words = readFileSync(`/proc/${pid}/cmdline`, "utf8").split("\0");
      if (!words.includes(`guest=podnet-${plan.podId},debug-threads=on`)) continue;
      return identify(pid, plan);
    } catch {
      // The process ended meanwhile, or is not podnet's.
    }
  }
  return undefined;
}

/**
 * podnet's machines that run on this host, recognized by their command lines, whichever podnetd,
 * user, run directory and control group they have. Any user can write such a command line: this is
 * not a reason to end a process.
 */
export function runningMachines(): Map<PodId, number> {
  const found = new Map<PodId, number>();
  for (const pid of readdirSync("/proc").map(Number).filter(Number.isInteger)) {
    try {
      const text = readFileSync(`/proc/${pid}/cmdline`, "utf8");
      const id = /(?:^|\0)guest=podnet-([a-z2-7]{12}),/.exec(text)?.[1];
      if (id !== undefined) found.set(id as PodId, pid);
    } catch {
      // It ended while we looked.
    }
  }
  return found;
}

function realPath(path: string): string {
  try {
    return realpathSync(path);
  } catch {
    return path;
  }
}
