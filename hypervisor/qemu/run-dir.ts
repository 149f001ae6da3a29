import { chmod, mkdir, open, rmdir, unlink } from "node:fs/promises";
import { join } from "node:path";
import { crossAsync } from "../../core/crossing.ts";
import { printable } from "../../core/names.ts";
import { fileError } from "../../linux/syscall-error.ts";
import { vmSockets } from "../driver.ts";
import { vmFiles } from "./argv.ts";

const names = [...Object.values(vmSockets), ...Object.values(vmFiles)];

const what = (path: string): string => `Cannot use the run directory "${path}"`;

/** Makes the VM's directory (0700) and the ones above it; leftovers of an earlier VM in it are removed. */
export async function makeRunDir(path: string): Promise<void> {
  try {
    await crossAsync("file", "make run directory", () =>
      mkdir(path, { recursive: true, mode: 0o700 }),
    );
    // It may have been there before, with other rights.
    await crossAsync("file", "close run directory to others", () => chmod(path, 0o700));
  } catch (error) {
    throw fileError(error, what(path));
  }
  await removeFiles(path);
}

/** Removes QEMU's files, and the directory when nothing else is in it. Absent means success. */
export async function removeRunDir(path: string): Promise<void> {
  await removeFiles(path);
  const removed = crossAsync("file", "remove run directory", () => rmdir(path));
  await removed.catch(unless(path, "ENOENT", "ENOTEMPTY", "ENOTDIR"));
}

async function removeFiles(path: string): Promise<void> {
  await Promise.all(
    names.map((name) =>
      crossAsync("file", `remove ${name}`, () => unlink(join(path, name))).catch(
        unless(path, "ENOENT", "ENOTDIR"),
      ),
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

/** The end of what QEMU wrote to its standard error, at most `bytes`; empty when there is nothing. */
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

/** The last line of QEMU's messages without its own name: what a person needs to see, safe to print. */
export function lastLine(log: string): string {
  const line = log.split("\n").at(-1) ?? "";
  return printable(line.replace(/^qemu-system-[a-z0-9_]+: /, ""));
}

/** Empties QEMU's log when it has grown above its limit; QEMU appends, so it goes on at the start. */
export async function boundLog(runDir: string): Promise<void> {
  try {
    await using file = await open(join(runDir, vmFiles.log), "r+");
    if ((await file.stat()).size <= logLimit) return;
    await crossAsync("file", `empty ${vmFiles.log}`, () => file.truncate(0));
  } catch {
    // Gone with the VM.
  }
}
