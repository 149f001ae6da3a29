import { mkdirSync, readdirSync, rmSync, statSync } from "node:fs";
import path from "node:path";

/** No build takes so long, milliseconds: whoever made an older directory was killed. */
const forgottenMs = 600_000;

/**
 * Has a build write into a directory of its own alongside the one it is for, which goes however it
 * ends; and those that earlier ones left.
 */
export async function withTemporaryFile(
  directory: string,
  body: (temporary: string) => Promise<void>,
): Promise<void> {
  const temporary = `${directory}.${process.pid}`;
  sweepTemporaryFiles(directory);
  mkdirSync(temporary, { recursive: true });
  try {
    await body(temporary);
  } finally {
    rmSync(temporary, { recursive: true, force: true });
  }
}

function sweepTemporaryFiles(directory: string): void {
  const alongside = path.dirname(directory);
  mkdirSync(alongside, { recursive: true });
  for (const name of readdirSync(alongside)) {
    const dot = name.lastIndexOf(".");
    if (name.slice(0, dot) !== path.basename(directory) || !/^\d+$/.test(name.slice(dot + 1)))
      continue;
    const left = path.join(alongside, name);
    // (Another build may just be taking its own away.)
    const madeMs = statSync(left, { throwIfNoEntry: false })?.mtimeMs ?? Date.now();
    if (Date.now() - madeMs > forgottenMs) rmSync(left, { recursive: true, force: true });
  }
}
