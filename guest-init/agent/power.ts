import type { Loop } from "./loop.ts";
import { readText } from "./files.ts";
import { sys } from "./sys.ts";

/** Magic numbers of reboot(2). */
const powerOffNumber = 0x4321fedc;
const restartNumber = 0x01234567;

/** How long another init has for a power-off it was asked for, milliseconds. */
const politeMs = 15_000;

const programs = ["/usr/sbin", "/usr/bin", "/sbin", "/bin"] as const;

/**
 * Powers off a machine whose PID 1 is another program: it is asked, by its own command, to end what
 * it has started; if it does not listen, or has no such command, the kernel is.
 */
export function askForPowerOff(loop: Loop): void {
  const program = programs
    .map((directory) => `${directory}/poweroff`)
    .find((path) => sys.mode(path) !== undefined);
  if (program === undefined) return endMachine(loop, "power-off");
  loop.after(politeMs, () => endMachine(loop, "power-off"));
  sys.spawn({
    args: [program],
    env: [`PATH=${programs.join(":")}`],
    directory: "/",
    uid: 0,
    gid: 0,
    groups: [0],
    terminal: false,
  });
}

const terminate = 15;
const kill = 9;
/** How long processes have between SIGTERM and SIGKILL, milliseconds. */
const graceMs = 50;

const mainThreads = (): number[] =>
  sys
    .readdir("/proc")
    .filter((name) => /^[0-9]+$/.test(name))
    .map(Number)
    // Kernel threads have no command line; they take no signals.
    .filter(
      (pid) => pid !== 1 && pid !== sys.pid() && (readText(`/proc/${pid}/cmdline`) ?? "") !== "",
    );

/**
 * Ends the machine: processes are signalled, given a moment, killed; buffers written. Never returns
 * to its caller's world.
 */
export function endMachine(loop: Loop, how: "power-off" | "restart"): void {
  const end = (): void => {
    for (const pid of mainThreads()) signal(pid, kill);
    sys.sync();
    cleanDisks();
    sys.reboot(how === "power-off" ? powerOffNumber : restartNumber);
  };
  const running = mainThreads();
  if (running.length === 0) return end();
  for (const pid of running) signal(pid, terminate);
  loop.after(graceMs, end);
}

/** MS_RDONLY and MS_REMOUNT of mount(2). */
const remountReadOnly = 1 | 32;

/** Leaves file systems on disks clean, unless processes still write to them. */
function cleanDisks(): void {
  for (const line of (readText("/proc/self/mounts") ?? "").split("\n")) {
    const [source = "", target = ""] = line.split(" ");
    if (!source.startsWith("/dev/")) continue;
    try {
      sys.mount(source, target, "", remountReadOnly, "");
    } catch {
      // The file system stays writable; its journal, if it has one, recovers it.
    }
  }
}

function signal(pid: number, number: number): void {
  try {
    sys.kill(pid, number);
  } catch {
    // It has ended meanwhile.
  }
}
