import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import test, { type ExecutionContext } from "ava";
import { standInConfig } from "../lab/standin.ts";
import { Random } from "../sim/random.ts";
import { type CaseVisits, type Site, visitAll } from "./visit-all.ts";

export const full = process.env["PODNET_TEST_FULL"] === "1";
/** A run of all stages, which has less time for this one. */
export const short = process.env["PODNET_TEST_SHORT"] === "1";
export const seed = Number(process.env["PODNET_SEED"] ?? Math.floor(Math.random() * 2 ** 31));
/** What this process draws from. */
export const random = new Random(seed);

const summaries = path.resolve(import.meta.dirname, "../../build/summary/crash.d");

/**
 * What was done by the tests of `what`; scripts/test.ts puts all of it together at the stage's end,
 * sorted by `what`.
 */
export function summarise(what: string, text: string): void {
  mkdirSync(summaries, { recursive: true });
  writeFileSync(path.join(summaries, what), `${text}\n`);
}

/** Where `PODNET_CRASH_LOG=1` asks for each case as it ends. */
export function log(text: string): void {
  if (process.env["PODNET_CRASH_LOG"] === "1") process.stderr.write(`${text}\n`);
}

/** Some tests of the stage: what their machines are, and what they add up to. */
export interface Part {
  /**
   * Of a podnetd whose machines stand in, and that looks for no drift but after a change; made
   * before any test.
   */
  readonly config: () => string;
  /** Adds failpoints that were found. */
  found(points: number): void;
  /**
   * Visits cases in so many workers at once, and judges what has come of it. With `enough` the
   * cases hold spares: it ends after so many visits, all of which have to be made.
   */
  run<Case, S extends Site>(
    t: ExecutionContext,
    visits: CaseVisits<Case, S>,
    workers: number,
    enough?: number,
  ): Promise<void>;
}

/** The tests of this file, which are about `what`; a line reports them when they have ended. */
export function partOfStage(what: string): Part {
  const directory = mkdtempSync(path.join(tmpdir(), `podnet-crash-${what}-`));
  const sums = { points: 0, cases: 0, leaks: 0 };
  let config: string | undefined;
  test.before("machines that stand in", async () => {
    config = `drift_s = 3600\n${await standInConfig(directory)}`;
  });
  test.after.always("a line for the stage's end", () => {
    rmSync(directory, { recursive: true, force: true });
    const { points, cases, leaks } = sums;
    summarise(
      what,
      `crash of ${what} points=${points} cases=${cases} leaks=${leaks}, PODNET_SEED=${seed}`,
    );
  });
  return {
    config: () => {
      if (config === undefined) throw new Error("Asked for before any test");
      return config;
    },
    found(points) {
      sums.points += points;
    },
    async run(t, visits, workers, enough) {
      const { visited, missed, failures } = await visitAll(visits, { workers, enough, log });
      t.log(`${visited} cases, ${missed.length} not come by again, PODNET_SEED=${seed}`);
      sums.cases += visited;
      sums.leaks += failures.length;
      t.deepEqual(failures, [], [`PODNET_SEED=${seed}`, ...failures].join("\n\n"));
      // How often a point is come by may depend on time: nftables' generation is read again when it
      // changed meanwhile.
      const may = Math.max(2, visits.cases.length / 20);
      if (enough === undefined) t.true(missed.length <= may, missed.join("\n"));
      else t.true(visited >= enough, missed.join("\n"));
    },
  };
}
