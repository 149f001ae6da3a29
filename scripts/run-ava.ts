import { spawn } from "node:child_process";
import { once } from "node:events";
import path from "node:path";
import readline from "node:readline";

const top = path.resolve(import.meta.dirname, "..");

export interface Count {
  readonly passed: number;
  readonly failed: number;
  readonly skipped: number;
}

export interface AvaRun {
  /** What it is called in messages. */
  readonly name: string;
  /** Test files, from the top of the project; they run one at a time, in this order. */
  readonly files: readonly string[];
  /** The files run in one process, and not in one each: `test/one-process/run.ts`. */
  readonly oneProcess?: boolean;
  /** A run that takes longer is ended, and has failed. */
  readonly limitMinutes: number;
  /** A test in which nothing happens for so long has failed. */
  readonly timeoutSeconds: number;
  readonly environment: Readonly<Record<string, string | undefined>>;
  /**
   * Shows at once a test that failed and what comes on standard error; on standard output unless
   * given.
   */
  readonly show?: (line: string) => void;
}

export interface FailedTest {
  /** From the top of the project. */
  readonly file: string;
  readonly title: string;
}

export interface AvaResult extends Count {
  /**
   * The tests that failed; undefined when none did, or when something failed that is no single
   * test.
   */
  readonly failing: readonly FailedTest[] | undefined;
  /** What ava and the tests said on standard output, without what passed. */
  readonly said: readonly string[];
  /** How long each file's tests took, of those that took 100 ms or more. */
  readonly seconds: ReadonlyMap<string, number>;
}

/**
 * One of the lines a run of ava ends with: `3 tests passed`, `1 test failed`, `1 uncaught
 * exception` …
 */
const closingLine = /^ {2}(\d+) .*?(passed|failed|skipped|todo|rejections?|exceptions?)$/;

/** A test that passed, with its time if that is 100 ms or more: `✔ file › title (1m 3.2s)`. */
const timedLine = /^ {2}✔ (.*) \((?:(\d+)m ?)?(?:([\d.]+)(ms|s))?\)$/;

/** A test that failed. */
const failedLine = /^ {2}✘ \[fail\]: (.*)$/;

/** An error that no test of a file waited for. */
const uncaughtLine = /^ {2}(?:Uncaught exception|Unhandled rejection) in (\S+)$/;

/** How long a file took among others in one process: test/one-process/ava-by-file.ts prints it. */
const fileLine = /^took (\d+) ms: (\S+)$/;

/** Says nothing: an empty line, a ruler, or which configuration ava reads. */
const emptyLine = /^ *(?:─+|⚠ Using configuration from .*)?$/;

/**
 * Runs ava over some files, in a sandbox of their own: what they leave ends with it. Passes are
 * counted as they come, for ava's closing lines leave them out when something failed; the rest is
 * counted from those lines. (Not from TAP: ava 8.0.1's reporter for it crashes on a time-out.)
 */
export async function runAva(run: AvaRun): Promise<AvaResult> {
  const { name, files, oneProcess = false, limitMinutes, show = console.log } = run;
  const said: string[] = [];
  // (A test of the runner has one already.)
  const { PODNET_SANDBOX: _outer, ...environment } = run.environment;
  const child = spawn(
    "setpriv",
    [
      // Should the runner be killed, its runs end, too.
      "--pdeathsig=KILL",
      path.join(top, "scripts/sandbox"),
      path.join(top, "scripts/ava"),
      "--config=scripts/in-order.ts",
      "--concurrency=1",
      `--timeout=${run.timeoutSeconds}s`,
      ...(oneProcess ? ["test/one-process/run.ts"] : files),
    ],
    {
      cwd: top,
      stdio: ["ignore", "pipe", "pipe"],
      env: {
        ...environment,
        [oneProcess ? "PODNET_TEST_FILES" : "PODNET_TEST_ORDER"]: files.join("\n"),
      },
    },
  );
  const ended = once(child, "exit") as Promise<[number | null]>;
  const lines = readline.createInterface({ input: child.stdout });
  const limit = setTimeout(() => {
    show(`  ✘ ${name}: ended after ${limitMinutes.toFixed(1)} minutes: ${files.join(", ")}`);
    // With it ends all that it started.
    child.kill("SIGKILL");
    lines.close();
  }, limitMinutes * 60_000);
  const seconds = new Map<string, number>();
  // (The reporter has what tests print on standard error.)
  readline.createInterface({ input: child.stderr }).on("line", (line) => {
    const [, ms, file] = fileLine.exec(line) ?? [];
    if (file === undefined) show(`  ${name}: ${line}`);
    else seconds.set(file, Number(ms) / 1000);
  });
  let passed = 0;
  let failed = 0;
  let skipped = 0;
  /** The failed tests and the uncaught errors whose file ava names. */
  const failing: FailedTest[] = [];
  const names = oneProcess ? titlesOfFiles : new TestNames(files);
  let closed = false;
  for await (const line of lines) {
    const total = closingLine.exec(line);
    const failure = failedLine.exec(line);
    if (failure !== null) {
      const name = failure[1] ?? "";
      const found = names.parse(name);
      if (found !== undefined) failing.push(found);
      show(`  ✘ ${found?.file ?? run.name}: ${found?.title ?? name}`);
    }
    const uncaught = uncaughtLine.exec(line)?.[1];
    if (uncaught !== undefined && files.includes(uncaught))
      failing.push({ file: uncaught, title: "an error outside of any test" });
    if (total !== null) {
      closed = true;
      if (total[2] === "skipped" || total[2] === "todo") skipped += Number(total[1]);
      else if (total[2] !== "passed") failed += Number(total[1]);
    } else if (/^ {2}✔ /.test(line)) {
      passed++;
      // (A test of one process's files counts from the process's begin.)
      if (oneProcess) continue;
      const [, test = "", minutes = "0", amount = "0", unit] = timedLine.exec(line) ?? [];
      const file = names.parse(test)?.file;
      const took = Number(minutes) * 60 + Number(amount) / (unit === "ms" ? 1000 : 1);
      if (file !== undefined) seconds.set(file, (seconds.get(file) ?? 0) + took);
    } else if (failure === null && !emptyLine.test(line)) said.push(line);
  }
  const [code] = await ended;
  clearTimeout(limit);
  const allNamed = failed > 0 && failing.length === failed;
  // A run that died, hung or ran nothing is a failure, whatever its lines said.
  const ran = passed + failed + skipped > 0;
  if (!closed || !ran || (code !== 0 && failed === 0)) {
    show(`  ✘ ${name}: the test runner ended with ${code} after ${passed} passes`);
    failed++;
  }
  return { passed, failed, skipped, failing: allNamed ? failing : undefined, said, seconds };
}

/** Of files in one process each title names its file: `test/unit/x.test.ts › what it shows`. */
const titlesOfFiles = {
  parse(name: string): FailedTest | undefined {
    const [, file, title] = /^(\S+\.test\.ts) › (.*)$/.exec(name) ?? [];
    return file === undefined || title === undefined ? undefined : { file, title };
  },
};

/**
 * Finds a test's file by the name that ava's reporter shows (ava/lib/reporters/prefix-title.js).
 */
class TestNames {
  readonly #files: readonly string[];
  /** What comes before a title: the path below the common folder, such as `daemon › store › `. */
  readonly #prefixes: readonly (readonly [prefix: string, file: string])[];

  constructor(files: readonly string[]) {
    this.#files = files;
    const folders = files.map((file) => path.dirname(file).split("/"));
    const [first = []] = folders;
    const differs = first.findIndex((part, i) => folders.some((parts) => parts[i] !== part));
    const depth = differs < 0 ? first.length : differs;
    this.#prefixes = files.map((file) => {
      const parts = file
        .replace(/\.test\.ts$/, "")
        .split("/")
        .slice(depth);
      return [`${parts.join(" › ")} › `, file] as const;
    });
  }

  /** Undefined for a name that is none of these files'. The only file is not named. */
  parse(name: string): FailedTest | undefined {
    const [only, second] = this.#files;
    if (only !== undefined && second === undefined) return { file: only, title: name };
    const found = this.#prefixes.find(([prefix]) => name.startsWith(prefix));
    return found === undefined ? undefined : { file: found[1], title: name.slice(found[0].length) };
  }
}
