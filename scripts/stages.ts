import { globSync, readFileSync } from "node:fs";
import path from "node:path";

const top = path.resolve(import.meta.dirname, "..");

/** A part of the tests that runs by itself. */
export interface Stage {
  readonly name: string;
  readonly files: string;
  /** Of these the longest, which begin first: what begins last is waited for alone. */
  readonly longest?: readonly string[];
  /**
   * Of these, what only a complete run has time for: long boots of images that a short one meets in
   * another way.
   */
  readonly completeOnly?: readonly string[];
  /** Warm minutes on two cores; going over is reported, not failed: the machines are noisy. */
  readonly budgetMinutes: number;
  /**
   * Test files at a time: never more than two where they boot machines, so that these do not starve
   * each other; more where they mostly wait, for deadlines to pass.
   */
  readonly concurrency: number;
  readonly timeoutSeconds: number;
  /**
   * What a failure here may mean is that the machine was busy elsewhere: it is looked at once more
   * (docs/decisions/0036), unless it comes of a search or of kills, where a failure seen once is a
   * defect found.
   */
  readonly secondLook?: true;
  /**
   * A search: a short run draws from the date, so that each day looks elsewhere
   * (docs/decisions/0075).
   */
  readonly drawsByDay?: true;
  /**
   * Its tests write a closing line, such as `crash points=12 …`, to build/summary/NAME; without one
   * it has failed.
   */
  readonly closes?: true;
}

const inVm = (name: string): string => `test/vm/${name}.test.ts`;

/** Quick ones first. */
export const stages: readonly Stage[] = [
  {
    name: "static",
    files: "test/static/**/*.test.ts",
    budgetMinutes: 0.4,
    concurrency: 2,
    timeoutSeconds: 120,
  },
  {
    name: "unit",
    files: "test/unit/**/*.test.ts",
    budgetMinutes: 0.6,
    concurrency: 4,
    timeoutSeconds: 60,
  },
  {
    name: "planted",
    files: "test/planted/**/*.test.ts",
    budgetMinutes: 0.75,
    concurrency: 1,
    timeoutSeconds: 150,
    drawsByDay: true,
  },
  {
    name: "fuzz",
    files: "test/fuzz/**/*.test.ts",
    budgetMinutes: 1,
    concurrency: 2,
    timeoutSeconds: 180,
    drawsByDay: true,
    closes: true,
  },
  {
    name: "sim",
    files: "test/{sim,model}/**/*.test.ts",
    budgetMinutes: 1,
    concurrency: 2,
    timeoutSeconds: 180,
    drawsByDay: true,
    closes: true,
  },
  {
    name: "kernel",
    files: "test/kernel/**/*.test.ts",
    budgetMinutes: 2,
    concurrency: 4,
    timeoutSeconds: 120,
    secondLook: true,
  },
  {
    name: "standin",
    files: "test/vm/standin-*.test.ts",
    budgetMinutes: 1,
    concurrency: 4,
    timeoutSeconds: 240,
    secondLook: true,
  },
  {
    name: "vm",
    files: "test/vm/!(standin-)*.test.ts",
    completeOnly: [
      "arm64",
      "attach-killed",
      "cloud-image",
      "daemon-recovery",
      "debian-disk",
      "disks-own",
      "factory-killed",
    ].map(inVm),
    longest: [
      "together-pods",
      "together-machines",
      "attach",
      "lifecycle",
      "names",
      "jail-privileges",
      "factory-daemon",
      "debian-agent",
      "networks",
      "daemon-failures",
    ].map(inVm),
    budgetMinutes: 4,
    concurrency: 3,
    timeoutSeconds: 240,
    secondLook: true,
  },
  {
    name: "crash",
    files: "test/crash/**/*.test.ts",
    budgetMinutes: 3,
    concurrency: 1,
    timeoutSeconds: 300,
    drawsByDay: true,
    closes: true,
  },
  {
    name: "soak",
    files: "test/soak/**/*.test.ts",
    budgetMinutes: 0.5,
    concurrency: 1,
    timeoutSeconds: 120,
    closes: true,
  },
  {
    name: "overlay",
    files: "test/overlay/**/*.test.ts",
    budgetMinutes: 2,
    concurrency: 3,
    timeoutSeconds: 180,
    secondLook: true,
  },
  {
    name: "cni",
    files: "test/cni/**/*.test.ts",
    budgetMinutes: 2,
    concurrency: 2,
    timeoutSeconds: 180,
    secondLook: true,
  },
  {
    name: "docs",
    files: "test/docs/**/*.test.ts",
    completeOnly: ["test/docs/images.test.ts"],
    budgetMinutes: 2,
    concurrency: 1,
    timeoutSeconds: 240,
    secondLook: true,
  },
];

/**
 * The stage's files of a complete or a short run, in the order in which they begin, each once: what
 * another one imports runs there (`*together*.test.ts`).
 */
export function filesOf(
  { files, completeOnly = [], longest = [] }: Stage,
  full: boolean,
): readonly string[] {
  const there = globSync(files, { cwd: top });
  const elsewhere = there
    .filter((file) => path.basename(file).includes("together"))
    .flatMap((file) => {
      const imports = readFileSync(path.join(top, file), "utf8").matchAll(/^import "(.+)";$/gm);
      return [...imports].map(([, name = ""]) => path.join(path.dirname(file), name));
    });
  const place = (file: string): number =>
    longest.includes(file) ? longest.indexOf(file) : longest.length;
  return there
    .filter((file) => (full || !completeOnly.includes(file)) && !elsewhere.includes(file))
    .sort()
    .sort((a, b) => place(a) - place(b));
}
