import { readFileSync, writeFileSync } from "node:fs";
import { perform } from "../core/effect.ts";
import { PodnetError } from "../core/errors.ts";
import { printable } from "../core/names.ts";
import { fileError } from "./syscall-error.ts";

/**
 * Path of a key below /proc/sys. A key with a slash in it is used unchanged, as in sysctl(8):
 * `net/ipv4/conf/eth0.5/forwarding` cannot be written with dots.
 */
function sysctlPath(key: string): string {
  const path = key.includes("/") ? key : key.replaceAll(".", "/");
  if (!/^[a-z0-9_]+(?:\/[A-Za-z0-9_.@+=-]+)+$/.test(path) || /(?:^|\/)\.\.?(?:\/|$)/.test(path))
    throw new PodnetError("INVALID_ARGUMENT", `Sysctl key "${printable(key)}" is not usable`, {
      hint: "Write it as sysctl(8) does: with dots, or with slashes where a part holds a dot",
    });
  return `/proc/sys/${path}`;
}

/**
 * A kernel setting's value, without the final newline. Keys below `net` are those of the calling
 * thread's network namespace; being synchronous, this always is the main thread's. Throws
 * `SYSCALL_FAILED`; `details.errno` is `ENOENT` when this kernel lacks the key.
 */
export function readSysctl(key: string): string {
  try {
    return readFileSync(sysctlPath(key), "latin1").trimEnd();
  } catch (error) {
    throw fileError(error, `Cannot read sysctl "${key}"`);
  }
}

/** Sets a kernel setting. Throws `SYSCALL_FAILED`. */
export function writeSysctl(key: string, value: string): void {
  const path = sysctlPath(key);
  // Of a link's own settings without the link's name.
  const what = `set ${path.slice("/proc/sys/".length).replace(/\/conf\/[^/]+\//, "/conf/*/")}`;
  try {
    // r+ and not w: a missing key must be an error, never a new file.
    perform("file", what, () => writeFileSync(path, value, { encoding: "latin1", flag: "r+" }));
  } catch (error) {
    throw fileError(error, `Cannot set sysctl "${key}" to "${printable(value)}"`);
  }
}
