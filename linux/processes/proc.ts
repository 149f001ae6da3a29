import { readFileSync } from "node:fs";
import { fileError } from "../syscall-error.ts";

/** Identifies this boot of the host: a pid recorded under another one means nothing. */
export function bootId(): string {
  return readFileSync("/proc/sys/kernel/random/boot_id", "latin1").trim();
}

/**
 * The fields of /proc/PID/stat from the third (state) on. The second field, the program's name in
 * parentheses, may itself hold blanks and parentheses (proc(5)).
 */
export const parseStat = (text: string): readonly string[] =>
  text.slice(text.lastIndexOf(")") + 2).split(" ");

/** VmRSS of /proc/PID/status, KiB; undefined for a process that has no memory any more. */
export function parseResidentKib(status: string): number | undefined {
  const value = /^VmRSS:\s+([0-9]+) kB$/m.exec(status)?.[1];
  return value === undefined ? undefined : Number(value);
}

/** Clock ticks of /proc in a second: the kernel's interface, whatever its own clock (USER_HZ). */
const ticksPerS = 100;

/**
 * Time that a process took, all its threads', in user mode and in the kernel: fields 14 and 15 of
 * /proc/PID/stat.
 */
export function parseCpuMs(stat: readonly string[]): number | undefined {
  const ticks = Number(stat[11]) + Number(stat[12]);
  return Number.isSafeInteger(ticks) && ticks >= 0 ? ticks * (1000 / ticksPerS) : undefined;
}

/** Undefined when there is no such process. */
function statFields(pid: number): readonly string[] | undefined {
  const text = readProc(`/proc/${pid}/stat`);
  return text === undefined ? undefined : parseStat(text);
}

/**
 * A process's state as proc(5) has it: `R`, `S`, `D`, `T` …; undefined when there is no such
 * process, or its state is unreadable.
 */
export function processState(pid: number): string | undefined {
  try {
    return statFields(pid)?.[0];
  } catch {
    return undefined;
  }
}

function readProc(path: string): string | undefined {
  try {
    return readFileSync(path, "latin1");
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    // ESRCH: the process ended between open and read.
    if (code === "ENOENT" || code === "ESRCH") return undefined;
    throw fileError(error, `Cannot read "${path}"`);
  }
}

/**
 * When a process started, in clock ticks since boot (field 22 of /proc/PID/stat), as text because
 * it is only ever compared. With the boot id it distinguishes a reused pid from the original
 * process. Undefined when there is none.
 */
export function processStartTime(pid: number): string | undefined {
  return statFields(pid)?.[19];
}

/**
 * Whether `pid` still is the process that started at `startTime` and has not ended (a zombie has).
 */
export function isSameProcess(pid: number, startTime: string): boolean {
  const fields = statFields(pid);
  if (fields === undefined || fields[19] !== startTime) return false;
  return fields[0] !== "Z" && fields[0] !== "X";
}

/**
 * Processor time a process has taken since it started, milliseconds; undefined when there is none.
 */
export function cpuMsOf(pid: number): number | undefined {
  const fields = statFields(pid);
  return fields === undefined ? undefined : parseCpuMs(fields);
}

/** Memory of a process that is in RAM now, in KiB (VmRSS); undefined when it has ended. */
export function residentKib(pid: number): number | undefined {
  const status = readProc(`/proc/${pid}/status`);
  return status === undefined ? undefined : parseResidentKib(status);
}

/** The process a thread belongs to (`Tgid` of /proc/TID/status); undefined when there is none. */
export function processOfThread(thread: number): number | undefined {
  const pid = /^Tgid:\s+(\d+)$/m.exec(readProc(`/proc/${thread}/status`) ?? "")?.[1];
  return pid === undefined ? undefined : Number(pid);
}

/** Whether a thread is one of this process. */
export const hasThread = (pid: number, thread: number): boolean =>
  readProc(`/proc/${pid}/task/${thread}/stat`) !== undefined;

/** The name of a process, 15 bytes at most (/proc/PID/comm); undefined when there is none. */
export const nameOf = (pid: number): string | undefined => readProc(`/proc/${pid}/comm`)?.trimEnd();

/**
 * The effective user of a process, which may differ from the owner of its files in /proc; undefined
 * when there is none.
 */
export function userOf(pid: number): number | undefined {
  const uid = /^Uid:\s+\d+\s+(\d+)/m.exec(readProc(`/proc/${pid}/status`) ?? "")?.[1];
  return uid === undefined ? undefined : Number(uid);
}
