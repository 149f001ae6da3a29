/**
 * Compares benchmarks with the committed baseline, scripts/bench.d/baseline.json:
 *   check-bench.ts [NAME...]            exits 1 when a ratio is more than a quarter worse
 *   check-bench.ts --record [NAME...]   writes the medians of three runs into the baseline
 * A benchmark that is worse runs twice more, and the median of the three counts: a neighbour's
 * minute of work on a shared machine is no reason to fail.
 */
import { spawnSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { type Baseline, medianOf, readLastLine, worseThan } from "./baseline.ts";

const top = path.resolve(import.meta.dirname, "..");
const file = path.join(top, "scripts/bench.d/baseline.json");
const all = JSON.parse(readFileSync(file, "utf8")) as Record<string, Baseline>;
const runsWhenWorse = 3;

function runOnce(name: string, { options }: Baseline): Readonly<Record<string, number>> {
  console.log(`scripts/bench ${[name, ...options].join(" ")}`);
  const { stdout, status } = spawnSync(path.join(top, "scripts/bench"), [name, ...options], {
    encoding: "utf8",
    stdio: ["ignore", "pipe", "inherit"],
    maxBuffer: 1 << 28,
  });
  if (status !== 0) throw new Error(`The benchmark "${name}" exited ${status}:\n${stdout}`);
  console.log(stdout.trimEnd().split("\n").at(-1));
  return readLastLine(name, stdout);
}

/** Runs it until it is not worse, three times at most. */
function isWorse(name: string, baseline: Baseline): boolean {
  const runs = [runOnce(name, baseline)];
  if (worseThan(baseline, runs).length === 0) return false;
  while (runs.length < runsWhenWorse) runs.push(runOnce(name, baseline));
  const worse = worseThan(baseline, runs);
  for (const { ratio, was, is, by } of worse)
    console.log(`${name}: ${ratio} was ${was}, is ${is}: ${(by * 100).toFixed(0)} % worse`);
  return worse.length > 0;
}

function record(name: string, baseline: Baseline): void {
  const runs = Array.from({ length: runsWhenWorse }, () => runOnce(name, baseline));
  const ratios = Object.entries(baseline.ratios).map(
    ([ratio, kept]) => [ratio, { ...kept, is: medianOf(ratio, runs) }] as const,
  );
  all[name] = { ...baseline, ratios: Object.fromEntries(ratios) };
  writeFileSync(file, `${JSON.stringify(all, undefined, 2)}\n`);
}

const words = process.argv.slice(2);
const isRecord = words[0] === "--record";
const named = isRecord ? words.slice(1) : words;
const names = named.length > 0 ? named : Object.keys(all);
const worse: string[] = [];
for (const name of names) {
  const baseline = all[name];
  if (baseline === undefined) {
    console.error(`The baseline has no benchmark "${name}", but ${Object.keys(all).join(", ")}`);
    process.exit(2);
  }
  if (isRecord) record(name, baseline);
  else if (isWorse(name, baseline)) worse.push(name);
}
if (worse.length > 0) console.log(`Worse than the baseline: ${worse.join(", ")}`);
process.exitCode = worse.length > 0 ? 1 : 0;
