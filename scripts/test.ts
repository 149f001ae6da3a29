/**
 * Runs the test stages one after the other inside the sandbox (scripts/test starts it there),
 * prints each test that fails as it fails and each stage's time against its budget, and writes
 * `passed failed skipped` to build/test-result.
 */
import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import path from "node:path";
import type { FailedTest } from "./run-ava.ts";
import { environmentOf, runStage, unsteadyLine } from "./run-stage.ts";
import { filesOf, type Stage, stages } from "./stages.ts";

const top = path.resolve(import.meta.dirname, "..");

const usage = `usage: scripts/test [--full] [--strict] [${stages.map(({ name }) => name).join(" | ")}]...`;
const words = process.argv.slice(2);
const full = words.includes("--full");
/** A file that fails once and passes alone is a failure. */
const strict = words.includes("--strict");
/** A run that goes on past midnight keeps its day. */
const begun = new Date();
const wanted = words.filter((word) => !word.startsWith("-"));
const unknown = words.filter(
  (word) => !["--full", "--strict"].includes(word) && !stages.some(({ name }) => name === word),
);
if (unknown.length > 0) {
  console.error(usage);
  process.exit(2);
}

/** The closing line that a stage's tests wrote; undefined when they wrote none. */
function closingOf({ name }: Stage): string | undefined {
  try {
    return readFileSync(path.join(summaries, name), "utf8").trim();
  } catch {
    console.log(`  ✘ ${name}: its tests wrote no closing line`);
    return undefined;
  }
}

const summaries = path.join(top, "build/summary");
rmSync(summaries, { recursive: true, force: true });
mkdirSync(summaries, { recursive: true });
const total = { passed: 0, failed: 0, skipped: 0 };
/** Tests that failed once, and whose files passed alone. */
const unsteady: FailedTest[] = [];
for (const stage of stages) {
  if (wanted.length > 0 && !wanted.includes(stage.name)) continue;
  const files = filesOf(stage, full);
  if (files.length === 0) continue;
  const begin = performance.now();
  const environment = environmentOf(stage, full, begun);
  const drawn = environment["PODNET_SEED"];
  const seed = drawn === undefined ? "" : `, PODNET_SEED=${drawn}`;
  console.log(`\n${stage.name}: ${files.length} files${seed}`);
  const count = await runStage({ stage, files, full, strict, environment });
  unsteady.push(...count.unsteady);
  const closing = stage.closes === undefined ? undefined : closingOf(stage);
  const failed = count.failed + (stage.closes !== undefined && closing === undefined ? 1 : 0);
  const seconds = (performance.now() - begin) / 1000;
  const over = seconds > stage.budgetMinutes * 60 ? " — over budget" : "";
  console.log(
    `${stage.name}: ${count.passed} passed, ${failed} failed, ${count.skipped} skipped in ${seconds.toFixed(1)} s (budget ${stage.budgetMinutes * 60} s${over})`,
  );
  if (closing !== undefined) console.log(closing);
  total.passed += count.passed;
  total.failed += failed;
  total.skipped += count.skipped;
}
// scripts/test shows these lines right before its totals.
writeFileSync(
  path.join(top, "build/test-unsteady"),
  unsteady.map((each) => `${unsteadyLine(each)}\n`).join(""),
);
writeFileSync(
  path.join(top, "build/test-result"),
  `${total.passed} ${total.failed} ${total.skipped}\n`,
);
process.exitCode = total.failed === 0 ? 0 : 1;
