/**
 * Runs the files of all test stages in one pool, each run of ava in a sandbox of its own, prints
 * each test that fails as it fails and each stage's time against its budget, and writes `passed
 * failed skipped` to build/test-result.
 */
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { availableParallelism } from "node:os";
import path from "node:path";
import { parseArgs } from "node:util";
import { changedTests } from "./changed-tests.ts";
import { environmentOf, runStages, type StageResult, type StageRun } from "./run-stage.ts";
import { filesOf, type Stage, stages } from "./stages.ts";
import { days, inTurn, turnOf } from "./turns.ts";

const top = path.resolve(import.meta.dirname, "..");

const usage = `usage: scripts/test [--all | --turn=1…${days}] [--full] [--strict] [${stages.map(({ name }) => name).join(" | ")}]...`;
const { values: options, positionals: wanted } = parseOptions();
const full = options.full === true;
/** A file that fails once and passes alone is a failure. */
const strict = options.strict === true;
/** A run that goes on past midnight keeps its day. */
const begun = new Date();
const turn = Number(options.turn ?? turnOf(begun));
const unknown = wanted.filter((word) => !stages.some(({ name }) => name === word));
if (unknown.length > 0) fail(`There is no stage "${unknown.join(" ")}"`);
if (!Number.isInteger(turn) || turn < 1 || turn > days)
  fail(`A turn is a number from 1 to ${days}, not "${options.turn}"`);

function parseOptions() {
  const boolean = { type: "boolean" } as const;
  const options = {
    all: boolean,
    full: boolean,
    strict: boolean,
    turn: { type: "string" },
    // For scripts/test alone: prints what has to be set up for the files of this run, and ends.
    "set-up": boolean,
  } as const;
  try {
    return parseArgs({ options, allowPositionals: true });
  } catch (thrown) {
    return fail((thrown as Error).message);
  }
}

function fail(message: string): never {
  console.error(`${message}\n${usage}`);
  process.exit(2);
}

/**
 * The closing lines that a stage's tests wrote, in one file or each in one of its own; undefined
 * when they wrote none.
 */
function closingOf({ name }: Stage): string | undefined {
  const file = path.join(summaries, name);
  try {
    if (existsSync(`${file}.d`)) {
      const parts = readdirSync(`${file}.d`).sort();
      const texts = parts.map((part) => readFileSync(path.join(`${file}.d`, part), "utf8"));
      writeFileSync(file, texts.join(""));
    }
    return readFileSync(file, "utf8").trim();
  } catch {
    console.log(`  ✘ ${name}: its tests wrote no closing line`);
    return undefined;
  }
}

const summaries = path.join(top, "build/summary");
rmSync(summaries, { recursive: true, force: true });
mkdirSync(summaries, { recursive: true });
/**
 * Weight of the files that run at a time, for each core: what they wait for together leaves some of
 * it idle.
 */
const perCore = 1.35;
const total = { passed: 0, failed: 0, skipped: 0 };
const notes: string[] = [];

/** Counts a stage whose last file has ended, and says how it went. */
function ended({ stage }: StageRun, count: StageResult): void {
  notes.push(...count.notes);
  const closing = stage.closes === undefined ? undefined : closingOf(stage);
  const failed = count.failed + (stage.closes !== undefined && closing === undefined ? 1 : 0);
  const over = count.seconds > stage.budgetMinutes * 60 ? " — over budget" : "";
  console.log(
    `${stage.name}: ${count.passed} passed, ${failed} failed, ${count.skipped} skipped in ${count.seconds.toFixed(1)} s (budget ${stage.budgetMinutes * 60} s${over})`,
  );
  if (closing !== undefined) console.log(closing);
  total.passed += count.passed;
  total.failed += failed;
  total.skipped += count.skipped;
}

const chosen = stages
  .filter(({ name }) => wanted.length === 0 || wanted.includes(name))
  .map((stage) => ({ stage, files: filesOf(stage, full) }));
/** Stages that are named have all their files. */
const everything = wanted.length > 0 || options.all === true;
const extent = full ? "complete" : everything ? "all" : "short";
const runs = (extent === "short" ? inTurn(chosen, turn, changedTests()) : chosen)
  .map((run) => ({ ...run, environment: environmentOf(run.stage, extent, begun) }))
  .filter(({ files }) => files.length > 0);
if (options["set-up"] === true) {
  const parts = runs.flatMap(({ stage, files }) =>
    Object.entries(stage.setUp ?? {}).flatMap(([part, needing]) =>
      files.some((file) => needing.includes(file)) ? part : [],
    ),
  );
  console.log([...new Set(parts)].join(" "));
  process.exit();
}
if (extent === "short")
  console.log(
    `turn ${turn} of ${days}: each file runs within ${days} days; --all runs all of them`,
  );
for (const { stage, files, environment } of runs) {
  const drawn = environment["PODNET_SEED"];
  const of = chosen.find((each) => each.stage === stage)?.files.length;
  const some = of === files.length ? "" : ` of ${of}`;
  console.log(
    `${stage.name}: ${files.length}${some} files${drawn === undefined ? "" : `, PODNET_SEED=${drawn}`}`,
  );
}
const times: string[] = [];
await runStages(runs, {
  full,
  strict,
  capacity: availableParallelism() * perCore,
  timed: (files, seconds) => times.push(`${seconds.toFixed(1)} ${files.join(" ")}\n`),
  ended,
});
// What the tables of scripts/stages.ts say that files take is taken from here.
writeFileSync(path.join(top, "build/test-times"), times.join(""));
// scripts/test shows these lines right before its totals.
writeFileSync(path.join(top, "build/test-notes"), notes.map((line) => `${line}\n`).join(""));
writeFileSync(
  path.join(top, "build/test-result"),
  `${total.passed} ${total.failed} ${total.skipped}\n`,
);
process.exitCode = total.failed === 0 ? 0 : 1;
