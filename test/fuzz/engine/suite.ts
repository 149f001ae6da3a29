import { globSync, mkdirSync, readdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import path from "node:path";
import test from "ava";
import { fixtures } from "./corpus.ts";
import { Coverage, top } from "./coverage.ts";
import { type Exploration, explore } from "./explore.ts";
import { superlinear } from "./growth.ts";
import { runSeed } from "./random.ts";
import type { Target } from "./target.ts";

const full = process.env["PODNET_TEST_FULL"] === "1";
/** A run of all stages has less time for this one. */
const short = process.env["PODNET_TEST_SHORT"] === "1";
/** Days within which each parser has its turn in such runs. */
const daysOfTargets = 3;
/** Inputs for each parser. */
const inputs = Number(process.env["PODNET_FUZZ_INPUTS"] ?? (full ? 1_000_000 : 2_000));
/** Least part of each parser's branches that must be reached. */
const wanted = 0.95;

/**
 * Declares the tests of some parsers. `load` imports their targets, and with them the parsers, once
 * the coverage is being taken: a test file imports nothing of the product itself.
 */
export function fuzz(suite: string, load: () => Promise<readonly Target[]>): void {
  const seed = runSeed();
  const done: Exploration[] = [];
  const faults: string[] = [];
  test.serial(
    `${suite}: no input crashes a parser, and 95 % of its branches are reached`,
    async (t) => {
      t.timeout(full ? 6 * 3_600_000 : 400_000);
      t.log(`PODNET_SEED=${seed}, ${inputs} inputs each`);
      using coverage = new Coverage();
      const all = await load();
      // (The seed of a short run is its date.)
      const targets = short ? all.filter((_each, i) => (i + seed) % daysOfTargets === 0) : all;
      t.true(targets.length > 0);
      const loaded = coverage.take();
      for (const target of targets) {
        const result = explore(target, {
          seed,
          inputs,
          coverage,
          loaded,
          wanted,
          keepNew: full,
        });
        done.push(result);
        t.log(line(result));
        faults.push(...faultsOf(target, result, seed, coverage));
        // Ava hears from its worker in between.
        await new Promise(setImmediate);
      }
      writeSummary(suite, done);
      t.true(faults.length === 0, faults.join("\n"));
    },
  );
}

function faultsOf(target: Target, result: Exploration, seed: number, coverage: Coverage): string[] {
  const { name } = target;
  const faults = result.crashes.map(
    ({ file, error }) => `${name}: ${path.relative(top, file)}, seed ${seed}: ${describe(error)}`,
  );
  if (result.reached < wanted * result.known)
    faults.push(
      `${name} reached ${percent(result)} with seed ${seed}; not:\n${result.missed.join("\n")}`,
    );
  if (result.crashes.length > 0) return faults;
  try {
    const growth = superlinear(target, result.corpus, {
      seed,
      coverage,
      families: full ? 500 : 12,
    });
    if (growth === undefined) return faults;
    const { lengths, steps, bytes } = growth;
    const text = JSON.stringify(Buffer.from(bytes).toString("latin1").slice(0, 300));
    faults.push(
      `${name}: ${steps.join(", ")} steps for ${lengths.join(", ")} bytes, seed ${seed}: ${text}`,
    );
  } catch (error) {
    faults.push(`${name}, seed ${seed}: ${describe(error)}`);
  }
  return faults;
}

const percent = ({ reached, known }: Exploration): string =>
  `${((100 * reached) / Math.max(1, known)).toFixed(1)} %`;

const describe = (error: unknown): string =>
  error instanceof Error
    ? (error.stack ?? error.message).split("\n").slice(0, 6).join("\n")
    : String(error);

/** One row of the table: parser, branches, inputs, time. */
function line(result: Exploration): string {
  const { target, reached, known, inputs: fed, corpus, crashes, missed, seconds } = result;
  const rate = Math.round(fed / Math.max(seconds, 0.001));
  return (
    `${target.padEnd(22)} branches ${`${reached}/${known}`.padStart(9)} ${percent(result).padStart(7)}` +
    `  inputs ${fed} corpus ${corpus.length} (${fixtures(target).length} stored) crashes ${crashes.length}` +
    `  ${seconds.toFixed(1)} s, ${rate}/s${missed.length > 0 ? `  not: ${missed.slice(0, 4).join("; ")}` : ""}`
  );
}

interface Row {
  readonly target: string;
  readonly inputs: number;
  readonly crashes: number;
  readonly reached: number;
  readonly known: number;
}

/**
 * Alongside the summary, which `scripts/test` takes away before each run: what an earlier run left
 * never counts.
 */
const parts = path.join(top, "build/summary/fuzz-parts");

/**
 * Each suite is a process of its own; the last one to end sums up what all have written. One that
 * is missing is named by none.
 */
function writeSummary(suite: string, results: readonly Exploration[]): void {
  mkdirSync(parts, { recursive: true });
  const rows = results.map(
    ({ target, inputs: fed, crashes, reached, known }): Row => ({
      target,
      inputs: fed,
      crashes: crashes.length,
      reached,
      known,
    }),
  );
  // Under another name until all of it is there: the others may be reading.
  const unfinished = path.join(top, `build/summary/fuzz-part-${suite}`);
  writeFileSync(unfinished, JSON.stringify(rows));
  renameSync(unfinished, path.join(parts, suite));
  const there = readdirSync(parts);
  if (!suites.every((each) => there.includes(each))) return;
  const all = suites.flatMap(
    (each) => JSON.parse(readFileSync(path.join(parts, each), "utf8")) as Row[],
  );
  const sum = (of: (row: Row) => number): number => all.reduce((total, row) => total + of(row), 0);
  writeFileSync(
    path.join(top, "build/summary/fuzz"),
    `fuzz branches=${sum((row) => row.reached)}/${sum((row) => row.known)}\n` +
      `fuzz parsers=${all.length} inputs=${sum((row) => row.inputs)} crashes=${sum((row) => row.crashes)}\n`,
  );
}

/**
 * What all the test files are called that declare a suite: `parsers-text.test.ts` has the suite
 * "text".
 */
const suites = globSync("test/fuzz/parsers-*.test.ts", { cwd: top }).map((file) =>
  path.basename(file).replace(/^parsers-(.*)\.test\.ts$/, "$1"),
);
