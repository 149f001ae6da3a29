import { mkdirSync, readdirSync, rmSync, statSync } from "node:fs";
import path from "node:path";

/** No build takes so long, milliseconds: whoever made an older draft was killed. */
const forgottenMs = 600_000;

/**
 * Has a build write into a directory of its own beside the one it is for, which goes however it
 * ends; and those that earlier ones left.
 */
export async function withDraft(
  directory: string,
  body: (draft: string) => Promise<void>,
): Promise<void> {
  const draft = `${directory}.${process.pid}`;
  sweepDrafts(directory);
  mkdirSync(draft, { recursive: true });
  try {
    await body(draft);
  } finally {
    rmSync(draft, { recursive: true, force: true });
  }
}

function sweepDrafts(directory: string): void {
  const beside = path.dirname(directory);
  mkdirSync(beside, { recursive: true });
  for (const name of readdirSync(beside)) {
    const dot = name.lastIndexOf(".");
    if (name.slice(0, dot) !== path.basename(directory) || !/^\d+$/.test(name.slice(dot + 1)))
      continue;
    const left = path.join(beside, name);
    // (Another build may just be taking its own away.)
    const madeMs = statSync(left, { throwIfNoEntry: false })?.mtimeMs ?? Date.now();
    if (Date.now() - madeMs > forgottenMs) rmSync(left, { recursive: true, force: true });
  }
}
