import { type Job, runPool } from "./pool.ts";
import { type AvaResult, type Count, type FailedTest, runAva } from "./run-ava.ts";
import { type Batch, batchesOf, type Stage } from "./stages.ts";

/**
 * A run of some files gets this many times what it takes, with the longest that a test may be idle,
 * before it counts as hung.
 */
const usualHangFactor = 3;
/**
 * Complete runs (`--full`) are long by design: minutes for a stage, and seconds for a test, before
 * they count as hung.
 */
const fullMinutes = 480;
/** More failing files than this in one stage are no accident of a busy machine. */
const mostUnsteady = 2;
/** Slow files that a stage's end names. */
const mostSlow = 16;
/** Lines that the end of a run repeats of a run of ava that failed, and how long a line may be. */
const mostSaid = 60;
const mostColumns = 400;
/** What the stages draw from that are no search, so that only the change turns them red. */
const fixedSeed = "20261121";

export interface StageRun {
  readonly stage: Stage;
  /** Test files, from the top of the project. */
  readonly files: readonly string[];
  readonly environment: NodeJS.ProcessEnv;
}

export interface HowToRun {
  readonly full: boolean;
  /** A file that fails once and passes alone is a failure. */
  readonly strict: boolean;
  /** Cores' worth of tests that run at a time. */
  readonly capacity: number;
  readonly hangFactor?: number;
  /** Called when a run of ava has ended, with how long it took. */
  readonly timed?: (files: readonly string[], seconds: number) => void;
  /** Called when the last file of a stage has ended. */
  readonly ended?: (run: StageRun, result: StageResult) => void;
  /** Shows a line; on standard output unless given. */
  readonly show?: (line: string) => void;
}

export interface StageResult extends Count {
  /** Tests that failed once, and whose files passed when they ran once more, alone. */
  readonly unsteady: readonly FailedTest[];
  /** What failed or is unsteady, and why: lines for the end of the run. */
  readonly notes: readonly string[];
  /** How long its files took in all, the second look left out. */
  readonly seconds: number;
}

/**
 * How much of the tests runs: `short` has the files of one turn and draws the least, `all` has all
 * files, and `complete` also has what takes hours.
 */
export type Extent = "short" | "all" | "complete";

/**
 * What the tests of a stage get in their environment. Complete runs draw anew, and name their
 * seeds. Others draw from the day in UTC (20261123) where the stage is a search, and otherwise from
 * a fixed seed. PODNET_SEED overrules all (docs/decisions/0075).
 */
export function environmentOf(
  { drawsByDay }: Stage,
  extent: Extent,
  begun: Date,
  given: NodeJS.ProcessEnv = process.env,
): NodeJS.ProcessEnv {
  if (extent === "complete") return { PODNET_TEST_FULL: "1", ...given };
  const day = begun.toISOString().slice(0, 10).replaceAll("-", "");
  const seed = { PODNET_SEED: drawsByDay === true ? day : fixedSeed };
  return extent === "short" ? { ...seed, PODNET_TEST_SHORT: "1", ...given } : { ...seed, ...given };
}

/**
 * Runs the files of all the stages in one pool (docs/decisions/0077). A few files that fail run
 * once more, alone and one at a time, where their stage allows it (docs/decisions/0036) or they
 * shared a process with others (docs/decisions/0157); what passes then is unsteady, and counts as
 * passed unless the run is strict.
 */
export async function runStages(runs: readonly StageRun[], how: HowToRun): Promise<void> {
  const each = runs.map((run) => new RunningStage(run, how));
  await runPool(
    each.flatMap((stage) => stage.jobs()),
    how.capacity,
  );
  for (const stage of each) await stage.lookAgain();
}

interface BatchResult extends AvaResult {
  readonly oneProcess: boolean;
}

/** A stage whose files run among those of others. */
class RunningStage {
  readonly #run: StageRun;
  readonly #how: HowToRun;
  readonly #batches: readonly Batch[];
  readonly #results: BatchResult[] = [];
  #seconds = 0;

  constructor(run: StageRun, how: HowToRun) {
    this.#run = run;
    this.#how = how;
    this.#batches = batchesOf(run.stage, run.files);
  }

  jobs(): readonly Job[] {
    const { name, exclusive, oneAtATime } = this.#run.stage;
    return this.#batches.map((batch) => ({
      weight: batch.weight,
      seconds: batch.seconds,
      exclusive,
      oneAtATime: oneAtATime === true ? name : undefined,
      run: async (): Promise<void> => {
        const begin = performance.now();
        this.#results.push({ ...(await this.#ava(batch)), oneProcess: batch.oneProcess });
        const took = (performance.now() - begin) / 1000;
        this.#seconds += took;
        this.#how.timed?.(batch.files, took);
        if (this.#results.length === this.#batches.length && this.#suspects() === undefined)
          this.#end(this.#first());
      },
    }));
  }

  /** The second look, where one is due. */
  async lookAgain(): Promise<void> {
    const suspects = this.#suspects();
    if (suspects === undefined) return;
    const first = this.#first();
    const { show = console.log, strict } = this.#how;
    show(`\n${this.#run.stage.name}: once more, alone: ${suspects.join(", ")}`);
    const seconds = sumOf(batchesOf(this.#run.stage, suspects));
    const second = await this.#ava({ files: suspects, oneProcess: false, seconds });
    const unsteady = this.#results.flatMap(({ failing = [] }) => failing);
    if (second.failed > 0) this.#end(first);
    else if (strict) this.#end({ ...first, unsteady });
    else
      this.#end({
        ...first,
        passed: first.passed + first.failed,
        failed: 0,
        unsteady,
        notes: this.#red().flatMap((result) => notesOf(result, unsteadyLine)),
      });
  }

  /** The files that are looked at once more; undefined when none is. */
  #suspects(): readonly string[] | undefined {
    const red = this.#red();
    const mayLook = this.#run.stage.secondLook === true || red.every((each) => each.oneProcess);
    if (!mayLook || red.length === 0) return undefined;
    if (red.some(({ failing }) => failing === undefined)) return undefined;
    const files = new Set(red.flatMap(({ failing = [] }) => failing.map(({ file }) => file)));
    return files.size > mostUnsteady ? undefined : [...files];
  }

  #red(): readonly BatchResult[] {
    return this.#results.filter(({ failed }) => failed > 0);
  }

  #first(): StageResult {
    const sum = (of: (result: AvaResult) => number): number =>
      this.#results.reduce((total, result) => total + of(result), 0);
    return {
      passed: sum(({ passed }) => passed),
      failed: sum(({ failed }) => failed),
      skipped: sum(({ skipped }) => skipped),
      unsteady: [],
      notes: this.#red().flatMap((result) => notesOf(result, failureLine)),
      seconds: this.#seconds,
    };
  }

  async #ava({ files, oneProcess, seconds }: Omit<Batch, "weight">): Promise<AvaResult> {
    const { stage, environment } = this.#run;
    const { full, hangFactor = usualHangFactor, show = console.log } = this.#how;
    const result = await runAva({
      name: stage.name,
      files,
      oneProcess,
      // A run that hangs is ended, and fails; what it started ends with its sandbox.
      limitMinutes: full ? fullMinutes : ((stage.timeoutSeconds + seconds) * hangFactor) / 60,
      timeoutSeconds: full ? fullMinutes * 60 : stage.timeoutSeconds,
      environment,
      show,
    });
    if (result.said.length > 0) {
      const [file, ...others] = files;
      show(`\n${stage.name}: ${file}${others.length > 0 ? ` and ${others.length} more` : ""}`);
      for (const line of result.said) show(`  ${line}`);
    }
    return result;
  }

  #end(result: StageResult): void {
    const { show = console.log, ended } = this.#how;
    const seconds = this.#results.flatMap((each) => [...each.seconds]);
    const slow = slowest(seconds);
    show("");
    if (slow !== undefined) show(slow);
    ended?.(this.#run, result);
  }
}

const sumOf = (batches: readonly Batch[]): number =>
  batches.reduce((sum, { seconds }) => sum + seconds, 0);

/** Where the time of a stage went; undefined when there is nothing to choose from. */
function slowest(
  seconds: readonly (readonly [file: string, seconds: number])[],
): string | undefined {
  if (seconds.length <= mostSlow) return undefined;
  const slow = seconds.toSorted(([, a], [, b]) => b - a).slice(0, mostSlow);
  const short = (file: string): string => file.replace(/^test\/(.*)\.test\.ts$/, "$1");
  return `  slowest: ${slow.map(([file, took]) => `${short(file)} ${took.toFixed(0)} s`).join(", ")}`;
}

/**
 * A line for each test of a run of ava that failed, and the last that ava said, which is why: a
 * record of a run may have only its end.
 */
const notesOf = (
  { failing = [], said }: AvaResult,
  lineOf: (test: FailedTest) => string,
): readonly string[] => [
  ...failing.map(lineOf),
  ...said.slice(-mostSaid).map((line) => `  ${line.slice(0, mostColumns)}`),
];

const failureLine = ({ file, title }: FailedTest): string => `✘ ${file}: ${title}`;

/** How the end of a run reports a test that is unsteady. */
export const unsteadyLine = ({ file, title }: FailedTest): string =>
  `⚠ unsteady: ${file}: "${title}" failed once, and its file passed alone`;
