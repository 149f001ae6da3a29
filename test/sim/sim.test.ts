import { mkdirSync, writeFileSync } from "node:fs";
import path from "node:path";
import test from "ava";
import { run } from "../../linux/processes/command.ts";
import { plants } from "./plants.ts";

const top = path.resolve(import.meta.dirname, "../..");
const full = process.env["PODNET_TEST_FULL"] === "1";
/** A run of all stages, which has less time for this one. */
const short = process.env["PODNET_TEST_SHORT"] === "1";
const seed = Number(process.env["PODNET_SEED"] ?? Math.floor(Math.random() * 2 ** 30));
const workers = 2;
/** Histories of all workers that a run has, however busy the machine is. */
const least = 20;
/** Of one worker: 10,000 histories in all, which take an hour or more, or what time allows. */
const share = { histories: 5000, seconds: full ? 6 * 3600 : short ? 12 : 22 };
/** Milliseconds until a run of histories counts as hung. */
const limitMs = (share.seconds + 120) * 1000;

interface Result {
  readonly text: string;
  readonly histories: number;
  readonly steps: number;
  readonly failures: number;
}

/** In a process of its own: a simulation takes time itself away from whoever is in it. */
async function simulate(...words: string[]): Promise<Result> {
  const argv = [
    path.join(top, "scripts/node"),
    path.join(top, "test/sim/run.ts"),
    ...words,
  ] as const;
  const { stdout } = await run(argv, { okCodes: [0, 1], timeoutMs: limitMs });
  const last = stdout.trimEnd().split("\n").at(-1) ?? "";
  return { text: stdout, ...(JSON.parse(last) as Omit<Result, "text">) };
}

test.serial("A history is a function of its seed", async (t) => {
  t.timeout(120_000);
  for (const each of [seed, seed + 1, seed + 2]) {
    const first = await simulate("--seed", `${each}`);
    t.true(first.steps > 50);
    t.is((await simulate("--seed", `${each}`)).text, first.text);
  }
});

const names = Object.keys(plants);
const perDay = 3;
const places = Array.from({ length: perDay }, (_, i) => (seed * perDay + i) % names.length);
/** (The seed of a run of all stages is its date: each plant has its day within a week.) */
const planted = short ? places.flatMap((at) => names[at] ?? []) : names;

for (const name of planted)
  test.serial(`A planted fault is found: ${name}`, async (t) => {
    t.timeout(120_000);
    const { failures, histories, text } = await simulate(
      "--seed",
      "1",
      "--histories",
      "300",
      "--plant",
      name,
    );
    t.is(failures, 1, "nothing was found in 300 histories");
    t.log(`after ${histories}: ${/^violation: (.*)$/m.exec(text)?.[1]}`);
    t.regex(text, /^replay: scripts\/node test\/sim\/run\.ts --seed \d+/m);
  });

test.serial("Whatever happens, the host ends as it should and no pod is lost", async (t) => {
  t.timeout(limitMs + 60_000);
  const results = await Promise.all(
    Array.from({ length: workers }, (_, i) => {
      const first = seed + i * share.histories;
      const { histories, seconds } = share;
      return simulate(
        "--seed",
        `${first}`,
        "--histories",
        `${histories}`,
        "--seconds",
        `${seconds}`,
        // On a busy machine it takes longer; what is looked at stays enough.
        "--least",
        `${Math.ceil(least / workers)}`,
      );
    }),
  );
  const sum = (of: "histories" | "steps" | "failures"): number =>
    results.reduce((all, result) => all + result[of], 0);
  const line = `sim histories=${sum("histories")} steps=${sum("steps")} failures=${sum("failures")}`;
  t.log(`PODNET_SEED=${seed}`, line);
  mkdirSync(path.join(top, "build/summary"), { recursive: true });
  writeFileSync(path.join(top, "build/summary/sim"), `${line}\n`);
  for (const { failures, text } of results) t.is(failures, 0, `PODNET_SEED=${seed}\n${text}`);
  if (full) t.is(sum("histories"), workers * share.histories);
  else t.true(sum("histories") >= least);
});
