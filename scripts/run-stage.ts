import { type Count, type FailedTest, runAva } from "./run-ava.ts";
import type { Stage } from "./stages.ts";

/** A stage gets this many times its budget before it is taken for hung. */
const hangFactor = 6;
/**
 * Complete runs (`--full`) are long by design: minutes for a stage, and seconds for a test, before
 * they count as hung.
 */
const fullMinutes = 480;
/** More failing files than this in one stage are no accident of a busy machine. */
const mostUnsteady = 2;
/** What the stages draw from that are no search, so that only the change turns them red. */
const fixedSeed = "20261121";

export interface StageRun {
  readonly stage: Stage;
  /** Test files, from the top of the project, in the order in which they begin. */
  readonly files: readonly string[];
  readonly full: boolean;
  /** A file that fails once and passes alone is a failure. */
  readonly strict: boolean;
  readonly environment: NodeJS.ProcessEnv;
  /** Shows a line; on standard output unless given. */
  readonly show?: (line: string) => void;
}

export interface StageResult extends Count {
  /** Tests that failed once, and whose files passed when they ran once more, alone. */
  readonly unsteady: readonly FailedTest[];
}

/**
 * What the tests of a stage get in their environment. Complete runs draw anew, and name their
 * seeds. Short ones draw from the day in UTC (20261123) where the stage is a search, and otherwise
 * from a fixed seed. PODNET_SEED overrules all (docs/decisions/0075).
 */
export function environmentOf(
  { drawsByDay }: Stage,
  full: boolean,
  begun: Date,
  given: NodeJS.ProcessEnv = process.env,
): NodeJS.ProcessEnv {
  if (full) return { PODNET_TEST_FULL: "1", ...given };
  const day = begun.toISOString().slice(0, 10).replaceAll("-", "");
  return { PODNET_SEED: drawsByDay === true ? day : fixedSeed, ...given };
}

/**
 * Runs a stage. A few files that fail run once more, alone and one at a time, where the stage
 * allows it (docs/decisions/0036); what passes then is unsteady, and counts as passed unless the
 * run is strict.
 */
export async function runStage(it: StageRun): Promise<StageResult> {
  const { stage, files, full, strict, environment, show = console.log } = it;
  const run = {
    name: stage.name,
    files,
    concurrency: stage.concurrency,
    // A stage that hangs is ended, and fails; what it started ends with the sandbox.
    limitMinutes: full ? fullMinutes : stage.budgetMinutes * hangFactor,
    timeoutSeconds: full ? fullMinutes * 60 : stage.timeoutSeconds,
    environment,
    show,
  };
  const first = { ...(await runAva(run)), unsteady: [] };
  const { failing } = first;
  if (stage.secondLook === undefined || failing === undefined) return first;
  const suspects = [...new Set(failing.map(({ file }) => file))];
  if (suspects.length > mostUnsteady) return first;
  show(`  once more, alone: ${suspects.join(", ")}`);
  const second = await runAva({ ...run, files: suspects, concurrency: 1 });
  if (second.failed > 0) return first;
  if (strict) return { ...first, unsteady: failing };
  return { ...first, passed: first.passed + first.failed, failed: 0, unsteady: failing };
}

/** How the end of a run tells of a test that is unsteady. */
export const unsteadyLine = ({ file, title }: FailedTest): string =>
  `⚠ unsteady: ${file}: "${title}" failed once, and its file passed alone`;
