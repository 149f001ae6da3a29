import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readFileSync, renameSync, rmSync } from "node:fs";
import path from "node:path";

export const sha256 = (content: Uint8Array | string): string =>
  createHash("sha256").update(content).digest("hex");

export const sha256File = (file: string): string => sha256(readFileSync(file));

/** One key out of everything a result depends on. */
export const keyOf = (...inputs: readonly string[]): string =>
  sha256(inputs.map((input) => `${input.length}:${input}`).join("")).slice(0, 24);

/**
 * Results of slow steps, kept by a hash of their inputs: a step whose inputs are unchanged is not
 * done again. A result appears under its name only when it is whole, so that an interrupted build
 * leaves nothing wrong.
 */
export class BuildCache {
  readonly #directory: string;

  constructor(directory: string) {
    this.#directory = directory;
    mkdirSync(directory, { recursive: true });
  }

  /** Path of the result; `make` writes it to the path it is given when it is not there yet. */
  async file(name: string, key: string, make: (to: string) => Promise<void>): Promise<string> {
    const dot = name.lastIndexOf(".");
    const [stem, extension] = dot < 0 ? [name, ""] : [name.slice(0, dot), name.slice(dot)];
    const file = path.join(this.#directory, `${stem}-${key}${extension}`);
    if (existsSync(file)) return file;
    const temporary = path.join(this.#directory, `temporary-${process.pid}-${name}`);
    try {
      await make(temporary);
      renameSync(temporary, file);
    } finally {
      rmSync(temporary, { force: true, recursive: true });
    }
    return file;
  }
}

/**
 * Puts a file in place atomically: a reader sees the old content or the new one. Builds may run
 * concurrently.
 */
export function place(to: string, write: (temporary: string) => void): void {
  const temporary = `${to}.${process.pid}.new`;
  try {
    write(temporary);
    renameSync(temporary, to);
  } finally {
    rmSync(temporary, { force: true });
  }
}
