import { chmod, chown, mkdir, open, readdir, rmdir, unlink } from "node:fs/promises";
import { join } from "node:path";
import { performAsync } from "../../core/effect.ts";
import { printable } from "../../core/names.ts";
import { fileError } from "../../linux/syscall-error.ts";
import { type VmPlan, vmSockets } from "../driver.ts";
import { vmFiles } from "../argv/argv.ts";
import { shareSocket } from "../argv/share-words.ts";

const namesOf = ({ shares = [] }: RunDir): readonly string[] => [
  ...Object.values(vmSockets),
  ...Object.values(vmFiles),
  ...shares.map((_, index) => shareSocket(index)),
];

const what = (path: string): string => `Cannot use the run directory "${path}"`;

type RunDir = Pick<VmPlan, "runDir" | "jail" | "shares">;

/**
 * Makes the VM's directory and the ones above it; leftovers of an earlier VM in it are removed. It
 * is open to podnetd alone, and to a jailed QEMU by its group: that one may make sockets in it, but
 * not replace what is not its own (the sticky bit), such as its log.
 */
export async function makeRunDir(plan: RunDir): Promise<void> {
  const { runDir: path, jail } = plan;
  try {
    await performAsync("file", "make run directory", () =>
      mkdir(path, { recursive: true, mode: 0o700 }),
    );
    // It may have been there before, with other rights.
    if (jail !== undefined) {
      const owner = process.getuid?.() ?? 0;
      await performAsync("file", "give run directory a group", () => chown(path, owner, jail.uid));
    }
    const mode = jail === undefined ? 0o700 : 0o1770;
    await performAsync("file", "close run directory to others", () => chmod(path, mode));
  } catch (error) {
    throw fileError(error, what(path));
  }
  const names = namesOf(plan);
  await removeFiles(path, names, names);
}

/**
 * Removes QEMU's files, and the directory when nothing else is in it; what a jailed QEMU left there
 * is all its own (it can make no directory), whatever its name. Absent means success.
 */
export async function removeRunDir(plan: RunDir): Promise<void> {
  const { runDir: path, jail } = plan;
  const names = namesOf(plan);
  const others = jail === undefined ? [] : await readdir(path).catch(() => []);
  await removeFiles(path, new Set([...names, ...others]), names);
  const removed = performAsync("file", "remove run directory", () => rmdir(path));
  await removed.catch(unless(path, "ENOENT", "ENOTEMPTY", "ENOTDIR"));
}

async function removeFiles(
  path: string,
  all: Iterable<string>,
  names: readonly string[],
): Promise<void> {
  await Promise.all(
    Array.from(all, (name) =>
      performAsync("file", `remove ${names.includes(name) ? name : "leftover"}`, () =>
        unlink(join(path, name)),
      ).catch(unless(path, "ENOENT", "ENOTDIR")),
    ),
  );
}

function unless(path: string, ...codes: readonly string[]): (error: unknown) => void {
  return (error) => {
    const { code } = error as NodeJS.ErrnoException;
    if (!codes.includes(code ?? "")) throw fileError(error, what(path));
  };
}

/** Bytes of QEMU's own messages that are kept: a guest can provoke some without end. */
const logLimit = 1024 * 1024;

/**
 * The end of what QEMU wrote to its standard error, at most `bytes`; empty when there is nothing.
 */
export async function logTail(runDir: string, bytes = 2048): Promise<string> {
  try {
    await using file = await open(join(runDir, vmFiles.log), "r");
    const { size } = await file.stat();
    const start = Math.max(0, size - bytes);
    const { buffer, bytesRead } = await file.read(Buffer.alloc(bytes), 0, bytes, start);
    return buffer.subarray(0, bytesRead).toString("utf8").trim();
  } catch {
    return "";
  }
}

/**
 * The last line of QEMU's messages without its own name: what a person needs to see, safe to print.
 */
export function lastLine(log: string): string {
  const line = log.slice(log.lastIndexOf("\n") + 1);
  return printable(line.replace(/^qemu-system-[a-z0-9_]+: /, ""));
}

/**
 * Empties QEMU's log when it has grown above its limit; QEMU appends, so it goes on at the start.
 */
export async function boundLog(runDir: string): Promise<void> {
  try {
    await using file = await open(join(runDir, vmFiles.log), "r+");
    if ((await file.stat()).size <= logLimit) return;
    await performAsync("file", `empty ${vmFiles.log}`, () => file.truncate(0));
  } catch {
    // Gone with the VM.
  }
}
