import { copyFileSync, existsSync, mkdirSync, renameSync, rmSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { perform } from "../../core/effect.ts";
import { toPodnetError } from "../../core/errors.ts";
import { bootId } from "../../linux/processes/proc.ts";
import { readMark } from "../store/commit-mark.ts";
import { commitsOf, copyOf } from "../store/good-copy.ts";
import { refuseUnfit } from "../store/found.ts";
import { migrations } from "../store/migrations.ts";

/** A state, or a copy of one, as it was found. */
export interface FoundState {
  readonly file: string;
  /** Undefined when it is not there, or cannot be used. */
  readonly commits: number | undefined;
  /** Why it cannot be used. */
  readonly problem: string | undefined;
}

/** The states that were found. Nothing is changed. */
export interface FoundStates {
  readonly state: FoundState;
  readonly copy: FoundState;
  /** How many commits the state had; undefined when that is not known. */
  readonly had: number | undefined;
}

/** Looks at the state of a directory, and at its copy. */
export function findStates(stateDir: string): FoundStates {
  const file = join(stateDir, "state.db");
  return { state: look(file), copy: look(copyOf(file)), had: readMark(file, bootId()) };
}

function look(file: string): FoundState {
  if (!existsSync(file)) return { file, commits: undefined, problem: "it is not there" };
  try {
    refuseUnfit(file, migrations.length);
    return { file, commits: commitsOf(file) ?? 0, problem: undefined };
  } catch (thrown) {
    return { file, commits: undefined, problem: toPodnetError(thrown).message };
  }
}

/** Files that make up a state. */
const parts = ["", "-wal", "-shm", "-mark"] as const;

/**
 * Puts the one with more commits in the place of the state, whatever it was; what was there is kept
 * in a directory alongside it. With neither the state begins anew. Answers that directory.
 */
export const chooseState = (stateDir: string, found: FoundStates): string =>
  perform("file", "put state aside", () => putAside(stateDir, found));

function putAside(stateDir: string, { state, copy }: FoundStates): string {
  const aside = join(stateDir, `state-${new Date().toISOString().replaceAll(/[:.]/g, "-")}`);
  mkdirSync(aside, { mode: 0o700 });
  const { file } = state;
  const copyWins = copy.commits !== undefined && copy.commits > (state.commits ?? -1);
  const unusable = state.commits === undefined;
  for (const part of parts) {
    const from = `${file}${part}`;
    const to = join(aside, basename(from));
    if (!existsSync(from)) continue;
    copyFileSync(from, `${to}.new`);
    renameSync(`${to}.new`, to);
    if (copyWins || unusable) rmSync(from);
  }
  if (!copyWins) return aside;
  const fresh = join(dirname(file), "state.db.new");
  copyFileSync(copy.file, fresh);
  renameSync(fresh, file);
  return aside;
}
