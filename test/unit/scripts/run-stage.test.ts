import { mkdtempSync, rmSync } from "node:fs";
import path from "node:path";
import test from "ava";
import {
  environmentOf,
  runStages,
  type StageResult,
  unsteadyLine,
} from "../../../scripts/run-stage.ts";
import { batchesOf, stages } from "../../../scripts/stages.ts";
import { drawFaults, share } from "../../planted/draw.ts";
import { faults } from "../../planted/faults.ts";

const top = path.resolve(import.meta.dirname, "../../..");
const file = "test/fixtures/runner/unsteady.test.ts";
const stage = {
  name: "fixture",
  files: file,
  budgetMinutes: 1,
  weight: 1,
  seconds: 1,
  timeoutSeconds: 60,
} as const;

/** Runs the file whose first run fails. */
async function run(secondLook: boolean, strict: boolean): Promise<StageResult> {
  const directory = mkdtempSync(path.join(top, "build/podnet-runner-"));
  const results: StageResult[] = [];
  try {
    const environment = { ...process.env, PODNET_MARKER: path.join(directory, "marker") };
    await runStages(
      [{ stage: secondLook ? { ...stage, secondLook } : stage, files: [file], environment }],
      {
        full: false,
        strict,
        capacity: 1,
        ended: (_, result) => results.push(result),
        // (The failures of the fixture are no failures of this run.)
        show: () => {},
      },
    );
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
  const [result] = results;
  if (result === undefined || results.length > 1) throw new Error("A stage ends once");
  return result;
}

test("a test that fails once is named as unsteady, and fails the run when it is strict; a skip is counted", async (t) => {
  const lenient = await run(true, false);
  t.like(lenient, { passed: 2, failed: 0, skipped: 1 });
  t.deepEqual(lenient.unsteady, [{ file, title: "fails the first time" }]);
  const [note = "", ...why] = lenient.notes;
  t.is(note, unsteadyLine({ file, title: "fails the first time" }));
  t.true(why.length > 3, "and what ava said of it");
  t.is(
    unsteadyLine({ file, title: "a b" }),
    `⚠ unsteady: ${file}: "a b" failed once, and its file passed alone`,
  );
  const strict = await run(true, true);
  t.like(strict, { passed: 1, failed: 1, skipped: 1 });
  t.is(strict.unsteady.length, 1);
  t.like(await run(false, false), { passed: 1, failed: 1, skipped: 1, unsteady: [] });
});

test("a test that fails is named with its file at once, and one that hangs is ended with its file", async (t) => {
  const fixture = (name: string): string => `test/fixtures/runner/${name}.test.ts`;
  const lines: string[] = [];
  const results = new Map<string, StageResult>();
  const environment = { ...process.env };
  const hanging = { ...stage, name: "hanging" };
  // Its files take long, so that a busy machine does not make a run of them one that hangs.
  const failing = { ...stage, seconds: 600 };
  await runStages(
    [
      { stage: hanging, files: [fixture("hangs")], environment },
      { stage: failing, files: [fixture("fails")], environment },
    ],
    {
      full: false,
      strict: false,
      capacity: 2,
      hangFactor: 0.1,
      ended: (run, result) => results.set(run.stage.name, result),
      show: (line) => lines.push(line),
    },
  );
  t.like(results.get("fixture"), { passed: 0, failed: 1 });
  t.true(
    lines.some((line) => line.startsWith(`  ✘ ${fixture("fails")}: fails each time`)),
    lines.join("\n"),
  );
  const [first, ...others] = results.get("fixture")?.notes ?? [];
  t.true(first?.startsWith(`✘ ${fixture("fails")}: fails each time`), first);
  t.true(
    others.some((line) => line.includes("t.fail()")),
    others.join("\n"),
  );
  t.like(results.get("hanging"), { passed: 0, failed: 1 });
  t.true(
    lines.some((line) => /hanging: ended after .*hangs\.test\.ts/.test(line)),
    lines.join("\n"),
  );
});

/** Runs files that share a process. */
async function runShared(files: readonly string[]): Promise<StageResult | undefined> {
  const results: StageResult[] = [];
  await runStages(
    [{ stage: { ...stage, ownProcess: [] }, files, environment: { ...process.env } }],
    {
      full: false,
      strict: false,
      capacity: 1,
      ended: (_, result) => results.push(result),
      show: () => {},
    },
  );
  return results[0];
}
const sharing = (name: string): string => `test/fixtures/runner/shares-${name}.test.ts`;

test("files in one process run one after the other, with their hooks; what fails there alone is unsteady", async (t) => {
  const files = [sharing("first"), sharing("second")];
  const result = await runShared(files);
  t.like(result, { passed: 4, failed: 0, skipped: 1 });
  const title = "fails where it shares a process";
  t.deepEqual(result?.unsteady, [{ file: sharing("second"), title }]);
  t.deepEqual(
    batchesOf({ ...stage, ownProcess: ["shares-second"] }, files).map((batch) => [
      batch.oneProcess,
      batch.files,
    ]),
    [
      [true, [sharing("first")]],
      [false, [sharing("second")]],
    ],
  );
});

test("a file that changes the process for those after it fails the run, and is named", async (t) => {
  const result = await runShared([sharing("first"), sharing("badly")]);
  t.is(result?.failed, 1);
  t.regex(
    result?.notes.join("\n") ?? "",
    /shares-badly\.test\.ts left .*: PODNET_LEFT 1, found unset/,
  );
});

test("a file whose tests are all skipped counts as skipped, not as a run that died", async (t) => {
  const results: StageResult[] = [];
  const skips = "test/fixtures/runner/skips.test.ts";
  await runStages([{ stage, files: [skips], environment: { ...process.env } }], {
    full: false,
    strict: false,
    capacity: 1,
    ended: (_, result) => results.push(result),
    show: () => {},
  });
  t.like(results[0], { passed: 0, failed: 0, skipped: 1 });
});

test("searches draw from the day, other stages from one seed, and PODNET_SEED overrules both", (t) => {
  const evening = new Date("2026-11-23T23:59:59Z");
  const night = new Date("2026-11-24T00:00:00Z");
  const seed = (name: string, when: Date, given: NodeJS.ProcessEnv = {}): string | undefined => {
    const found = stages.find((each) => each.name === name);
    if (found === undefined) throw new Error(name);
    return environmentOf(found, "all", when, given)["PODNET_SEED"];
  };
  for (const name of ["planted", "fuzz", "sim", "crash"]) {
    t.is(seed(name, evening), "20261123", name);
    t.is(seed(name, night), "20261124", name);
    t.is(seed(name, night, { PODNET_SEED: "7" }), "7", name);
  }
  t.is(seed("vm", evening), seed("vm", night));
  const [planted] = stages.filter(({ name }) => name === "planted");
  t.deepEqual(planted && environmentOf(planted, "complete", night, {}), { PODNET_TEST_FULL: "1" });
  t.deepEqual(planted && environmentOf(planted, "short", night, {}), {
    PODNET_SEED: "20261124",
    PODNET_TEST_SHORT: "1",
  });
});

test("each quick fault has its turn within six weeks of short runs", (t) => {
  const quick = faults.filter(({ slow }) => slow !== true);
  const days = Array.from({ length: 42 }, (_, day) => drawFaults(faults, 20_261_101 + day));
  for (const each of days) t.is(new Set(each).size, share);
  const drawn = new Set(days.flat());
  t.deepEqual(
    quick.filter((fault) => !drawn.has(fault)).map(({ name }) => name),
    [],
  );
  t.is(drawn.size, quick.length);
  const names = (of: typeof faults): readonly string[] => of.map(({ name }) => name);
  t.deepEqual(names(drawFaults(faults, 20_261_101)), names(days[0] ?? []));
});
