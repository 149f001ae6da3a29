import { mkdirSync, readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { residentKib } from "../../linux/processes/proc.ts";

/** Cycles by the hundred and thousand instead of a few. */
export const complete = process.env["PODNET_TEST_FULL"] === "1";

/**
 * What resident memory may grow by, KiB. Of 20 pods it grew by 2.4 to 3.6 MiB, of 100 replugs
 * QEMU's by 2.2 MiB.
 */
const residentSlackKib = 8 * 1024;
/**
 * What may be referenced more after the second half of the cycles than in their middle, KiB. Of 20
 * pods it was 250 to 450 KiB (events, answers to requests and quarantines that podnetd keeps for a
 * while), of 100 replugs 200 KiB; 200 KiB that each pod leaves are 1,600.
 */
const heldSlackKib = 1024;
/** Share of the cycles over which the least memory is taken, at the beginning and at the end. */
const share = 0.1;

/** Watches what a process holds from cycle to cycle. */
export class Growth {
  readonly #who: string;
  readonly #pid: number;
  readonly #heldBytes: (() => number | Promise<number>) | undefined;
  readonly #descriptors: number[] = [];
  readonly #residentKib: number[] = [];
  readonly #heldKib: number[] = [];

  /**
   * `heldBytes` collects the garbage of the process and says what is left; QEMU has none to
   * collect.
   */
  constructor(who: string, pid: number, heldBytes?: () => number | Promise<number>) {
    this.#who = who;
    this.#pid = pid;
    this.#heldBytes = heldBytes;
  }

  async look(): Promise<void> {
    if (this.#heldBytes !== undefined)
      this.#heldKib.push(Math.round((await this.#heldBytes()) / 1024));
    this.#descriptors.push(readdirSync(`/proc/${this.#pid}/fd`).length);
    this.#residentKib.push(residentKib(this.#pid) ?? 0);
  }

  /** What has grown, in words. Empty when nothing has grown by more than its slack. */
  grown(): string[] {
    return [
      this.#more(ends(this.#descriptors), "descriptors", 0),
      this.#more(ends(this.#residentKib), "KiB of resident memory", residentSlackKib),
      this.#more(halves(this.#heldKib), "KiB referenced", heldSlackKib),
    ].filter((line) => line !== undefined);
  }

  /** The figures of beginning and end. */
  toString(): string {
    const [descriptors, kib] = [this.#descriptors, this.#residentKib].map(ends);
    const held =
      this.#heldKib.length === 0 ? "" : `, ${halves(this.#heldKib).join(" → ")} KiB referenced`;
    return `${this.#who}: ${descriptors?.join(" → ")} descriptors, ${kib?.join(" → ")} KiB${held}`;
  }

  #more([before, after]: Ends, unit: string, slack: number): string | undefined {
    return after > before + slack ? `${this.#who}: ${after - before} ${unit} more` : undefined;
  }
}

type Ends = readonly [before: number, after: number];

/**
 * The least at the beginning and at the end. The very first cycles fill caches and do not count.
 */
function ends(all: readonly number[]): Ends {
  const some = Math.max(3, Math.ceil(all.length * share));
  return [Math.min(...all.slice(some, 2 * some)), Math.min(...all.slice(-some))];
}

/**
 * The least in the middle and at the end: the first half warms up caches and compiled code. Of
 * nothing it is 0.
 */
function halves(all: readonly number[]): Ends {
  return all.length === 0 ? [0, 0] : ends(all.slice(Math.floor(all.length / 2) - 3));
}

const summary = join(import.meta.dirname, "../../build/summary");
const wanted = ["pods", "replugs"] as const;
const ended = new Map<(typeof wanted)[number], { readonly count: number; readonly left: number }>();

/**
 * Notes what one kind of cycle has left. The stage's closing line is written when all kinds have
 * come to their end.
 */
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
