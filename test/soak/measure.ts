import { mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { residentKib } from "../../linux/proc.ts";

/** What a process holds that could grow without anybody seeing it. */
export interface Footprint {
  readonly descriptors: number;
  readonly residentKib: number;
}

export const footprint = (pid: number): Footprint => ({
  descriptors: readdirSync(`/proc/${pid}/fd`).length,
  residentKib: residentKib(pid) ?? 0,
});

/** Links in the calling thread's network namespace, by name. */
export const linkNames = (): readonly string[] =>
  readFileSync("/proc/thread-self/net/dev", "latin1")
    .split("\n")
    .slice(2)
    .flatMap((line) => line.split(":")[0]?.trim() || [])
    .toSorted();

export const complete = process.env["PODNET_TEST_FULL"] === "1";

const summary = join(import.meta.dirname, "../../build/summary");
const parts = new Map<string, number>();
let leaks = 0;

/** Adds to the stage's closing line; the line names every kind of cycle that was made, and what they left in all. */
export function noteCycles(kind: string, count: number, left: number): void {
  parts.set(kind, count);
  leaks += left;
  const cycles = [...parts.values()].reduce((sum, each) => sum + each, 0);
  const kinds = [...parts].map(([name, value]) => `${name}=${value}`).join(" ");
  mkdirSync(summary, { recursive: true });
  writeFileSync(join(summary, "soak"), `soak cycles=${cycles} ${kinds} leaks=${leaks}\n`);
}
