/**
 * Runs the test stages one after the other inside the sandbox (scripts/test starts it there), prints each test that
 * fails as it fails and each stage's time against its budget, and writes `passed failed skipped` to build/test-result.
 */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { globSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import path from "node:path";
import readline from "node:readline";

const top = path.resolve(import.meta.dirname, "..");

interface Stage {
  readonly name: string;
  readonly files: string;
  /** Of these, what only a complete run has time for: long boots of images that a short one meets in another way. */
  readonly completeOnly?: readonly string[];
  /** Warm minutes on two cores; going over is reported, not failed: the machines are noisy. */
  readonly budgetMinutes: number;
  /**
   * Test files at a time: never more than two where they boot machines, so that these do not starve each other; more where
   * they mostly wait, for deadlines to pass.
   */
  readonly concurrency: number;
  readonly timeoutSeconds: number;
  /** Its tests write a closing line, such as `crash points=12 …`, to build/summary/NAME; without one it has failed. */
  readonly closes?: true;
}

/** One of the lines a run of ava ends with: `3 tests passed`, `1 test failed`, `1 uncaught exception` … */
const closingLine = /^ {2}(\d+) .*?(passed|failed|skipped|todo|rejections?|exceptions?)$/;

/** A stage gets this many times its budget before it is taken for hung. */
const hangFactor = 6;
/** Complete runs (`--full`) are long by design: minutes for a stage, and seconds for a test, before they count as hung. */
const fullMinutes = 480;

/** Quick ones first. */
const stages: readonly Stage[] = [
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
    budgetMinutes: 0.5,
    concurrency: 1,
    timeoutSeconds: 150,
  },
  {
    name: "fuzz",
    files: "test/fuzz/**/*.test.ts",
    budgetMinutes: 1,
    concurrency: 2,
    timeoutSeconds: 180,
    closes: true,
  },
  {
    name: "sim",
    files: "test/{sim,model}/**/*.test.ts",
    budgetMinutes: 1,
    concurrency: 2,
    timeoutSeconds: 180,
    closes: true,
  },
  {
    name: "kernel",
    files: "test/kernel/**/*.test.ts",
    budgetMinutes: 2,
    concurrency: 3,
    timeoutSeconds: 120,
  },
  {
    name: "standin",
    files: "test/vm/standin-*.test.ts",
    budgetMinutes: 1,
    concurrency: 3,
    timeoutSeconds: 240,
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
    ].map((name) => `test/vm/${name}.test.ts`),
    budgetMinutes: 4,
    concurrency: 2,
    timeoutSeconds: 240,
  },
  {
    name: "crash",
    files: "test/crash/**/*.test.ts",
    budgetMinutes: 3,
    concurrency: 1,
    timeoutSeconds: 300,
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
    concurrency: 2,
    timeoutSeconds: 180,
  },
  {
    name: "docs",
    files: "test/docs/**/*.test.ts",
    completeOnly: ["test/docs/images.test.ts"],
    budgetMinutes: 2,
    concurrency: 1,
    timeoutSeconds: 240,
  },
];

interface Count {
  passed: number;
  failed: number;
  skipped: number;
}

/** A test that passed and took 100 ms or more, with its file where there are several: `✔ file › title (1m 3.2s)`. */
const timedLine = /^ {2}✔ (\S+) › .* \((?:(\d+)m ?)?(?:([\d.]+)(ms|s))?\)$/;

/** Where a stage's time went: its slowest files, with the seconds their tests took in all. */
class Slowest {
  readonly #seconds = new Map<string, number>();

  note(line: string): void {
    const [, file, minutes = "0", amount = "0", unit] = timedLine.exec(line) ?? [];
    if (file === undefined) return;
    const seconds = Number(minutes) * 60 + Number(amount) / (unit === "ms" ? 1000 : 1);
    this.#seconds.set(file, (this.#seconds.get(file) ?? 0) + seconds);
  }

  /** Undefined when there is nothing to choose from. */
  text(count: number): string | undefined {
    if (this.#seconds.size <= count) return undefined;
    const slow = [...this.#seconds].sort(([, a], [, b]) => b - a).slice(0, count);
    return `slowest: ${slow.map(([file, seconds]) => `${file} ${seconds.toFixed(0)} s`).join(", ")}`;
  }
}

/**
 * Runs ava over a stage's files; shows what does not pass. Passes are counted as they come, for ava's closing lines leave
 * them out when something failed; the rest is counted from those lines. (Not from TAP: ava 8.0.1's reporter for it
 * crashes on a time-out.)
 */
async function runStage(stage: Stage, files: readonly string[], full: boolean): Promise<Count> {
  const child = spawn(
    path.join(top, "scripts/ava"),
    [
      `--concurrency=${stage.concurrency}`,
      `--timeout=${full ? fullMinutes * 60 : stage.timeoutSeconds}s`,
      ...files,
    ],
    {
      cwd: top,
      detached: true,
      stdio: ["ignore", "pipe", "inherit"],
      env: { ...process.env, ...(full ? { PODNET_TEST_FULL: "1" } : {}) },
    },
  );
  const ended = once(child, "exit") as Promise<[number | null]>;
  // A stage that hangs is ended, and fails; what it started ends with the sandbox.
  const limitMinutes = full ? fullMinutes : stage.budgetMinutes * hangFactor;
  const limit = setTimeout(() => {
    console.log(`  ✘ ${stage.name}: ended after ${limitMinutes} minutes`);
    child.kill("SIGKILL");
    child.stdout.destroy();
  }, limitMinutes * 60_000);
  const count: Count = { passed: 0, failed: 0, skipped: 0 };
  const slowest = new Slowest();
  let closed = false;
  for await (const line of readline.createInterface({ input: child.stdout })) {
    const total = closingLine.exec(line);
    if (total !== null) {
      closed = true;
      if (total[2] === "skipped" || total[2] === "todo") count.skipped += Number(total[1]);
      else if (total[2] !== "passed") count.failed += Number(total[1]);
    } else if (/^ {2}✔ /.test(line)) {
      count.passed++;
      slowest.note(line);
    } else if (!/^ *(?:─+)?$/.test(line)) console.log(`  ${line}`);
  }
  const [code] = await ended;
  clearTimeout(limit);
  // A run that died, hung or ran nothing is a failure, whatever its lines said.
  const ran = count.passed + count.failed > 0;
  if (!closed || !ran || (code !== 0 && count.failed === 0)) {
    console.log(
      `  ✘ ${stage.name}: the test runner ended with ${code} after ${count.passed} passes`,
    );
    count.failed++;
  }
  const slow = slowest.text(16);
  if (slow !== undefined) console.log(`  ${slow}`);
  return count;
}

const words = process.argv.slice(2);
const full = words.includes("--full");
const wanted = words.filter((word) => !word.startsWith("-"));
const unknown = wanted.filter((word) => !stages.some(({ name }) => name === word));
if (unknown.length > 0 || words.some((word) => word.startsWith("-") && word !== "--full")) {
  console.error(`usage: scripts/test [--full] [${stages.map(({ name }) => name).join(" | ")}]...`);
  process.exit(2);
}

/** The closing line of a stage; a stage that should have written one and has not has failed. */
function closingOf({ name, closes }: Stage, count: Count): string | undefined {
  if (closes === undefined) return undefined;
  try {
    return readFileSync(path.join(summaries, name), "utf8").trim();
  } catch {
    console.log(`  ✘ ${name}: its tests wrote no closing line`);
    count.failed++;
    return undefined;
  }
}

const summaries = path.join(top, "build/summary");
rmSync(summaries, { recursive: true, force: true });
mkdirSync(summaries, { recursive: true });
const total: Count = { passed: 0, failed: 0, skipped: 0 };
for (const stage of stages) {
  if (wanted.length > 0 && !wanted.includes(stage.name)) continue;
  const files = globSync(stage.files, { cwd: top })
    .filter((file) => full || stage.completeOnly?.includes(file) !== true)
    .sort();
  if (files.length === 0) continue;
  const begin = performance.now();
  console.log(`\n${stage.name}: ${files.length} files`);
  const count = await runStage(stage, files, full);
  const closing = closingOf(stage, count);
  const seconds = (performance.now() - begin) / 1000;
  const over = seconds > stage.budgetMinutes * 60 ? " — over budget" : "";
  console.log(
    `${stage.name}: ${count.passed} passed, ${count.failed} failed, ${count.skipped} skipped in ${seconds.toFixed(1)} s (budget ${stage.budgetMinutes * 60} s${over})`,
  );
  if (closing !== undefined) console.log(closing);
  total.passed += count.passed;
  total.failed += count.failed;
  total.skipped += count.skipped;
}
writeFileSync(
  path.join(top, "build/test-result"),
  `${total.passed} ${total.failed} ${total.skipped}\n`,
);
process.exitCode = total.failed === 0 ? 0 : 1;
