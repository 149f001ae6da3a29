/**
 * Runs the test stages one after the other inside the sandbox (scripts/test starts it there), prints each test that
 * fails as it fails and each stage's time against its budget, and writes `passed failed skipped` to build/test-result.
 */
import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import path from "node:path";
import { type Count, runAva } from "./run-ava.ts";
import { filesOf, type Stage, stages } from "./stages.ts";

const top = path.resolve(import.meta.dirname, "..");

/** A stage gets this many times its budget before it is taken for hung. */
const hangFactor = 6;
/** Complete runs (`--full`) are long by design: minutes for a stage, and seconds for a test, before they count as hung. */
const fullMinutes = 480;

/** More failing files than this in one stage are no accident of a busy machine. */
const mostUnsteady = 2;
/**
 * What short runs draw from, so that a change and not a draw turns one red; complete runs draw anew each time, and name
 * their seeds. PODNET_SEED overrules both.
 */
const shortSeed = "20261121";

const words = process.argv.slice(2);
const full = words.includes("--full");
const wanted = words.filter((word) => !word.startsWith("-"));
const unknown = wanted.filter((word) => !stages.some(({ name }) => name === word));
if (unknown.length > 0 || words.some((word) => word.startsWith("-") && word !== "--full")) {
  console.error(`usage: scripts/test [--full] [${stages.map(({ name }) => name).join(" | ")}]...`);
  process.exit(2);
}

const environment = {
  ...(full ? { PODNET_TEST_FULL: "1" } : { PODNET_SEED: shortSeed }),
  ...process.env,
};

/** Runs a stage; a few files that fail are looked at once more, where the stage allows it, alone and one at a time. */
async function runStage(stage: Stage, files: readonly string[]): Promise<Count> {
  const run = {
    name: stage.name,
    files,
    concurrency: stage.concurrency,
    // A stage that hangs is ended, and fails; what it started ends with the sandbox.
    limitMinutes: full ? fullMinutes : stage.budgetMinutes * hangFactor,
    timeoutSeconds: full ? fullMinutes * 60 : stage.timeoutSeconds,
    environment,
  };
  const first = await runAva(run);
  const again = first.failing;
  if (stage.secondLook === undefined || again === undefined || again.length > mostUnsteady)
    return first;
  console.log(`  once more, alone: ${again.join(", ")}`);
  const second = await runAva({ ...run, files: again, concurrency: 1 });
  if (second.failed > 0) return first;
  unsteady.push(...again);
  return { ...first, passed: first.passed + first.failed, failed: 0 };
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
/** Files that failed once and passed alone. */
const unsteady: string[] = [];
for (const stage of stages) {
  if (wanted.length > 0 && !wanted.includes(stage.name)) continue;
  const files = filesOf(stage, full);
  if (files.length === 0) continue;
  const begin = performance.now();
  console.log(`\n${stage.name}: ${files.length} files`);
  const count = await runStage(stage, files);
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
for (const file of unsteady) console.log(`⚠ unsteady: ${file} failed once and passed alone`);
writeFileSync(
  path.join(top, "build/test-result"),
  `${total.passed} ${total.failed} ${total.skipped}\n`,
);
process.exitCode = total.failed === 0 ? 0 : 1;
