import type { Worker } from "./worker.ts";
import { type Action, impossible, type Point } from "./points.ts";

/** What visits are made in: a worker, and what stands around it. */
export interface Site extends AsyncDisposable {
  readonly worker: Worker;
}

/** A failpoint, and what is done at it. */
export interface Failing {
  readonly point: Point;
  readonly action: Action;
}

const everyAction: readonly Action[] = ["kill", "error", "hang"];

/** Some actions at every point where they can be, all unless given. */
export const everywhere = (
  points: readonly Point[],
  actions: readonly Action[] = everyAction,
): readonly Failing[] =>
  points
    .flatMap((point) => actions.map((action): Failing => ({ point, action })))
    .filter((each) => !impossible(each));

/** Cases, and how each is visited. */
export interface CaseVisits<Case, S extends Site> {
  readonly cases: readonly Case[];
  /** What is there already for the first workers. */
  readonly ready: readonly S[];
  /** Where there is need of another, the `number`th. */
  open(number: number): Promise<S>;
  title(each: Case): string;
  /**
   * What is wrong after it; undefined when podnetd did not come by the point. podnetd runs before
   * and after.
   */
  visit(site: S, each: Case): Promise<readonly string[] | undefined>;
}

export interface VisitsHow {
  /** Workers at once. */
  readonly workers: number;
  /**
   * Visits after which no other case is begun: the cases after them are spares for those that are
   * not come by. All unless given.
   */
  readonly enough?: number | undefined;
  /** Notified of each case as it ends. */
  log(text: string): void;
}

export interface Visited {
  readonly visited: number;
  /**
   * Points that were not come by again: two tasks of podnetd do not always take turns as they did.
   */
  readonly missed: readonly string[];
  readonly failures: readonly string[];
}

/** Times a point is armed before it counts as one that cannot be reached. */
const attempts = 3;
/** Failures shown before a run gives up: one defect fails many cases. */
const mostFailures = 12;

let sites = 0;

/**
 * What each operation comes by, the sites taking one after the other, side by side; in the order of
 * the operations.
 */
export async function enumerateIn<Operation, S extends Site>(
  sites: readonly S[],
  operations: readonly Operation[],
  enumerate: (site: S, operation: Operation) => Promise<readonly Point[]>,
): Promise<readonly (readonly [Operation, readonly Point[]])[]> {
  const found = new Map<Operation, readonly Point[]>();
  const waiting = operations.values();
  const work = async (site: S): Promise<void> => {
    for (const operation of waiting) found.set(operation, await enumerate(site, operation));
  };
  await Promise.all(sites.map(work));
  return operations.map((operation) => [operation, found.get(operation) ?? []]);
}

/** Visits cases, several workers at once. */
export async function visitAll<Case, S extends Site>(
  visits: CaseVisits<Case, S>,
  { workers, enough = Number.POSITIVE_INFINITY, log }: VisitsHow,
): Promise<Visited> {
  const waiting = visits.cases.values();
  const missed: string[] = [];
  const failures: string[] = [];
  let visited = 0;
  const given = visits.ready.values();
  const open = async (): Promise<S> => given.next().value ?? visits.open(sites++);
  const work = async (): Promise<void> => {
    for (let over = false; !over; ) {
      await using site = await open();
      over = true;
      for (const each of waiting) {
        if (failures.length >= mostFailures || visited >= enough) return;
        const begun = performance.now();
        const problems = await visitAgain(visits, site, each);
        const title = visits.title(each);
        log(`${fared(problems)} ${Math.round(performance.now() - begun)} ms ${title}`);
        if (problems === undefined) missed.push(title);
        else visited += 1;
        if (problems === undefined || problems.length === 0) continue;
        log(problems.join("\n"));
        failures.push([title, ...problems].join("\n  "));
        // What is wrong with a worker would be wrong with every case after it.
        over = false;
        break;
      }
    }
  };
  await Promise.all(Array.from({ length: workers }, work));
  return { visited, missed, failures };
}

const fared = (problems: readonly string[] | undefined): string =>
  problems === undefined ? "unreached" : problems.length === 0 ? "clean" : "wrong";

async function visitAgain<Case, S extends Site>(
  { visit }: CaseVisits<Case, S>,
  site: S,
  each: Case,
): Promise<readonly string[] | undefined> {
  for (let attempt = 1; attempt <= attempts; attempt++) {
    try {
      const problems = await visit(site, each);
      if (problems !== undefined)
        return problems.length === 0 ? [] : [...problems, `podnetd said:\n${site.worker.log()}`];
    } catch (thrown) {
      const { stack } = thrown as Error;
      return [stack ?? String(thrown), site.worker.log()];
    }
  }
  return undefined;
}
