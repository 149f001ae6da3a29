import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import test from "ava";
import { environmentOf, runStage, unsteadyLine } from "../../../scripts/run-stage.ts";
import { stages } from "../../../scripts/stages.ts";
import { drawFaults } from "../../planted/draw.ts";
import { faults } from "../../planted/faults.ts";

const file = "test/fixtures/runner/unsteady.test.ts";
const stage = {
  name: "fixture",
  files: file,
  budgetMinutes: 1,
  concurrency: 1,
  timeoutSeconds: 60,
} as const;

/** Runs the file whose first run fails. */
async function run(secondLook: boolean, strict: boolean): ReturnType<typeof runStage> {
  const directory = mkdtempSync(path.join(tmpdir(), "podnet-runner-"));
  try {
    return await runStage({
      stage: secondLook ? { ...stage, secondLook } : stage,
      files: [file],
      full: false,
      strict,
      environment: { ...process.env, PODNET_MARKER: path.join(directory, "marker") },
      // (The failures of the fixture are no failures of this run.)
      show: () => {},
    });
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
}

test("a test that fails once is named as unsteady, and fails the run when it is strict; a skip is counted", async (t) => {
  const lenient = await run(true, false);
  t.like(lenient, { passed: 2, failed: 0, skipped: 1 });
  t.deepEqual(lenient.unsteady, [{ file, title: "fails the first time" }]);
  t.is(
    unsteadyLine({ file, title: "a b" }),
    `⚠ unsteady: ${file}: "a b" failed once, and its file passed alone`,
  );
  const strict = await run(true, true);
  t.like(strict, { passed: 1, failed: 1, skipped: 1 });
  t.is(strict.unsteady.length, 1);
  t.like(await run(false, false), { passed: 1, failed: 1, skipped: 1, unsteady: [] });
});

test("searches draw from the day, other stages from one seed, and PODNET_SEED overrules both", (t) => {
  const evening = new Date("2026-11-23T23:59:59Z");
  const night = new Date("2026-11-24T00:00:00Z");
  const seed = (name: string, when: Date, given: NodeJS.ProcessEnv = {}): string | undefined => {
    const found = stages.find((each) => each.name === name);
    if (found === undefined) throw new Error(name);
    return environmentOf(found, false, when, given)["PODNET_SEED"];
  };
  for (const name of ["planted", "fuzz", "sim", "crash"]) {
    t.is(seed(name, evening), "20261123", name);
    t.is(seed(name, night), "20261124", name);
    t.is(seed(name, night, { PODNET_SEED: "7" }), "7", name);
  }
  t.is(seed("vm", evening), seed("vm", night));
  const [planted] = stages.filter(({ name }) => name === "planted");
  t.deepEqual(planted && environmentOf(planted, true, night, {}), { PODNET_TEST_FULL: "1" });
});

test("each quick fault has its turn within a month of short runs", (t) => {
  const share = 25;
  const quick = faults.filter(({ slow }) => slow !== true);
  const days = Array.from({ length: 28 }, (_, day) => drawFaults(faults, share, 20_261_101 + day));
  for (const each of days) t.is(new Set(each).size, share);
  const drawn = new Set(days.flat());
  t.deepEqual(
    quick.filter((fault) => !drawn.has(fault)).map(({ name }) => name),
    [],
  );
  t.is(drawn.size, quick.length);
  const names = (of: typeof faults): readonly string[] => of.map(({ name }) => name);
  t.deepEqual(names(drawFaults(faults, share, 20_261_101)), names(days[0] ?? []));
});
