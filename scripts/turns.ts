import { hasTurn, runWith, secondsOf, type Stage } from "./stages.ts";

/**
 * Days within which each test file has its turn: so many that a short run on two cores takes about
 * ten minutes, with its set-up (docs/decisions/0095).
 */
export const days = 14;

/** The turn of a day in UTC, from 1 to `days`: days that follow each other have turns that do. */
export const turnOf = (begun: Date): number =>
  (Math.floor(begun.getTime() / 86_400_000) % days) + 1;

export interface StageFiles {
  readonly stage: Stage;
  /** Test files, from the top of the project. */
  readonly files: readonly string[];
}

/**
 * What a short run takes of the stages' files: those without turns, those of this turn, and what
 * runs a file of `changed`. All stages together take about the same time in each turn.
 */
export function inTurn(
  all: readonly StageFiles[],
  turn: number,
  changed: ReadonlySet<string> = new Set(),
): readonly StageFiles[] {
  const turns = deal(all);
  const isChanged = (file: string): boolean => runWith(file).some((each) => changed.has(each));
  return all.map(({ stage, files }) => ({
    stage,
    files: files.filter((file) => (turns.get(file) ?? turn) === turn || isChanged(file)),
  }));
}

/** The turn of each file that has one. */
function deal(all: readonly StageFiles[]): ReadonlyMap<string, number> {
  const costs = all
    .flatMap(({ stage, files }) =>
      files
        .filter((file) => hasTurn(stage, file))
        .map((file) => ({ file, cost: stage.weight * secondsOf(stage, file) })),
    )
    .toSorted((a, b) => b.cost - a.cost || (a.file < b.file ? -1 : 1));
  const loads = Array.from({ length: days }, () => 0);
  return new Map(
    costs.map(({ file, cost }) => {
      const least = loads.indexOf(Math.min(...loads));
      loads[least] = (loads[least] ?? 0) + cost;
      return [file, least + 1];
    }),
  );
}
