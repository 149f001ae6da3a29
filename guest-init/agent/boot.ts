import { makeDirectories, readText, writeInto } from "./files.ts";
import { openFlag, sys, SysError, failedWith } from "./sys.ts";

const nosuid = 2;
const nodev = 4;
const noexec = 8;

/** Mounts of PID 1: source, target, type, flags, options. An existing mount is left. */
const mounts = [
  ["proc", "/proc", "proc", nosuid | nodev | noexec, ""],
  ["sysfs", "/sys", "sysfs", nosuid | nodev | noexec, ""],
  ["devtmpfs", "/dev", "devtmpfs", nosuid, "mode=0755"],
  ["devpts", "/dev/pts", "devpts", nosuid | noexec, "mode=0620,ptmxmode=0666,gid=5"],
  ["tmpfs", "/dev/shm", "tmpfs", nosuid | nodev, "mode=1777"],
  ["tmpfs", "/run", "tmpfs", nosuid | nodev, "mode=0755"],
  ["tmpfs", "/tmp", "tmpfs", nosuid | nodev, "mode=1777"],
] as const;

/** Links through which programs find their descriptors; devtmpfs does not create them. */
const links = [
  ["/proc/self/fd", "/dev/fd"],
  ["/proc/self/fd/0", "/dev/stdin"],
  ["/proc/self/fd/1", "/dev/stdout"],
  ["/proc/self/fd/2", "/dev/stderr"],
] as const;

/**
 * Tries one thing; a failure is printed on the console, and the boot goes on: PID 1 must not end.
 */
function attempt(what: string, run: () => void, ...fine: string[]): void {
  try {
    run();
  } catch (thrown) {
    if (!(thrown instanceof SysError)) throw thrown;
    if (!failedWith(thrown, ...fine)) sys.log(`${what}: ${thrown.message}`);
  }
}

/** The file systems a guest needs, and 0, 1 and 2 open. */
export function mountAll(): void {
  for (const [source, target, type, flags, options] of mounts) {
    // An engine that starts over must not hide what is there: a tmpfs is a new one each time.
    if (readText("/proc/self/mounts")?.includes(` ${target} `) === true) continue;
    attempt("mount", () => makeDirectories(target));
    attempt("mount", () => sys.mount(source, target, type, flags, options), "EBUSY");
  }
  for (const [target, path] of links) attempt("link", () => sys.symlink(target, path), "EEXIST");
  // Ctrl-Alt-Del comes as a signal, not as a reset.
  attempt("reboot", () => sys.reboot(0));
}

/**
 * Lets the kernel's grace periods end at once instead of with the next timer ticks. Renaming a link
 * waits for one with everything else that is about links waiting behind it: 11 ms, or 2 this way
 * (synchronize_rcu in dev_change_name, Linux 6.1).
 */
export function expediteKernel(): void {
  attempt("RCU", () => writeInto("/sys/kernel/rcu_expedited", "1"), "ENOENT");
}

/**
 * Lets an idle guest sleep: its kernel looks twice a second whether memory is to be compacted
 * before a program needs it. Memory is still compacted when one does.
 */
export function quietenKernel(): void {
  attempt("compaction", () => writeInto("/proc/sys/vm/compaction_proactiveness", "0"), "ENOENT");
}

const moduleDirectory = "/lib/modules";

/**
 * Loads the modules a list in the image names, in its order (a module before what it depends on is
 * ENOENT). An image without the list has them in its kernel, or its own init has loaded them.
 */
export function loadModules(list: "console" | "root" | "network" | "shares"): void {
  for (const line of (readText(`${moduleDirectory}/${list}.list`) ?? "").split("\n")) {
    if (line === "") continue;
    attempt(
      line,
      () => {
        const fd = sys.open(`${moduleDirectory}/${line}`, openFlag.read);
        try {
          sys.finitModule(fd);
        } finally {
          sys.close(fd);
        }
      },
      "EEXIST",
    );
  }
}

const portDirectory = "/sys/class/virtio-ports";

/**
 * Device of the virtio serial port with this name; undefined while there is none. A path is
 * returned unchanged.
 */
export function findPort(nameOrPath: string): string | undefined {
  if (nameOrPath.startsWith("/")) return nameOrPath;
  const port = sys
    .readdir(portDirectory)
    .find((entry) => readText(`${portDirectory}/${entry}/name`)?.trimEnd() === nameOrPath);
  return port === undefined ? undefined : `/dev/${port}`;
}

/** Makes the kernel look for PCI devices that were added without a notification. */
export function rescanPci(): void {
  attempt("PCI rescan", () => writeInto("/sys/bus/pci/rescan", "1\n"), "ENOENT");
}

/** Switches on processors and memory that were added (ONLINECPUMEM). */
export function onlineAll(): void {
  const system = "/sys/devices/system";
  const online = (directory: string, name: RegExp, key: string, value: string): void => {
    for (const entry of sys.readdir(directory)) {
      const path = `${directory}/${entry}/${key}`;
      const now = name.test(entry) ? readText(path)?.trim() : undefined;
      if (now === "0" || now === "offline") attempt(path, () => writeInto(path, value));
    }
  };
  online(`${system}/cpu`, /^cpu[0-9]+$/, "online", "1");
  online(`${system}/memory`, /^memory[0-9]+$/, "state", "online");
}
