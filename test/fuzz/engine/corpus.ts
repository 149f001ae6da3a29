import { mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { top } from "./coverage.ts";
import { digest } from "./random.ts";

const directory = (name: string): string => path.join(top, "test/fuzz/corpus", name);

/** Fixtures of a parser: inputs that once broke it, or that a person found worth keeping. */
export function fixtures(name: string): { readonly file: string; readonly bytes: Uint8Array }[] {
  let files: string[];
  try {
    files = readdirSync(directory(name)).sort();
  } catch {
    return [];
  }
  return files.map((file) => ({
    file,
    bytes: new Uint8Array(readFileSync(path.join(directory(name), file))),
  }));
}

/**
 * Writes an input below build/fuzz, for a person to look at and to move to test/fuzz/corpus.
 * Returns its path.
 */
export function writeFound(kind: "crash" | "new", name: string, bytes: Uint8Array): string {
  const folder = path.join(top, "build/fuzz", kind, name);
  mkdirSync(folder, { recursive: true });
  const file = path.join(folder, digest(bytes).toString(16).padStart(8, "0"));
  writeFileSync(file, bytes);
  return file;
}
