import { mkdirSync, readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { residentKib } from "../../linux/proc.ts";

/** Cycles by the hundred and thousand instead of a few. */
export const complete = process.env["PODNET_TEST_FULL"] === "1";

/** What memory may grow by, KiB: what a collector leaves lying about, which over hundreds of cycles evens out. */
const slackKib = complete ? 8 * 1024 : 48 * 1024;
/** Share of the cycles over which the least memory is taken, at the beginning and at the end. */
const share = 0.1;

/** Watches what a process holds from cycle to cycle. */
export class Growth {
  readonly #who: string;
  readonly #pid: number;
  readonly #descriptors: number[] = [];
  readonly #residentKib: number[] = [];

  constructor(who: string, pid: number) {
    this.#who = who;
    this.#pid = pid;
  }

  look(): void {
    this.#descriptors.push(readdirSync(`/proc/${this.#pid}/fd`).length);
    this.#residentKib.push(residentKib(this.#pid) ?? 0);
  }

  /** What has grown, in words: the least of the last cycles is compared with the least of the first ones that count. */
  grown(): string[] {
    return [
      this.#more(this.#descriptors, "descriptors", 0),
      this.#more(this.#residentKib, "KiB", slackKib),
    ].filter((line) => line !== undefined);
  }

  /** The figures of beginning and end. */
  toString(): string {
    const [descriptors, kib] = [this.#descriptors, this.#residentKib].map(ends);
    return `${this.#who}: ${descriptors?.join(" → ")} descriptors, ${kib?.join(" → ")} KiB`;
  }

  #more(all: readonly number[], unit: string, slack: number): string | undefined {
    const [before, after] = ends(all);
    return after > before + slack ? `${this.#who}: ${after - before} ${unit} more` : undefined;
  }
}

/** The least at the beginning and at the end. The very first cycles fill caches and do not count. */
function ends(all: readonly number[]): readonly [number, number] {
  const some = Math.max(3, Math.ceil(all.length * share));
  return [Math.min(...all.slice(some, 2 * some)), Math.min(...all.slice(-some))];
}

const summary = join(import.meta.dirname, "../../build/summary");
const wanted = ["pods", "replugs"] as const;
const ended = new Map<(typeof wanted)[number], { readonly count: number; readonly left: number }>();

/** Notes what one kind of cycle has left. The stage's closing line is written when all kinds have come to their end. */
export function noteCycles(kind: (typeof wanted)[number], count: number, left: number): void {
  ended.set(kind, { count, left });
  if (ended.size < wanted.length) return;
  const sum = (key: "count" | "left"): number =>
    [...ended.values()].reduce((total, each) => total + each[key], 0);
  const kinds = [...ended].map(([name, each]) => `${each.count} ${name}`).join(", ");
  mkdirSync(summary, { recursive: true });
  const line = `soak cycles=${sum("count")} leaks=${sum("left")}`;
  writeFileSync(join(summary, "soak"), `soak: ${kinds}\n${line}\n`);
}
