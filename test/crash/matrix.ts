import { armedFor } from "./arming.ts";
import { allChanges } from "./changes.ts";
import { openWorker } from "./worker.ts";
import type { Outcome } from "./outcome.ts";
import { type Case, endsAll, looks, type Operation, parse, type Point, title } from "./points.ts";
import { begin, visit } from "./visit.ts";
import { everywhere } from "./visit-all.ts";

/** Failures shown before a run gives up: one defect fails many cases. */
const mostFailures = 12;
/** Times a point is armed before it counts as one that cannot be reached. */
const attempts = 5;
/**
 * Looks that may not be come by in one run: how often the host is looked at hangs on when a machine
 * ends, say.
 */
const mostMissed = 3;

export interface MatrixOptions {
  /** Configuration of the workers' podnetds. */
  readonly config: string;
  /** Labs worked in at a time. */
  readonly workers: number;
  /** Notified of each case as it ends. */
  log(text: string): void;
}

export interface MatrixResult {
  readonly cases: number;
  /** Cases alongside these, at points that only look and were not come by again. */
  readonly missed: number;
  /** What was left, lost or not reached, one text a case. */
  readonly failures: readonly string[];
}

interface Queued {
  readonly visited: Case;
  readonly again: Point | undefined;
  readonly attempt: number;
}

/** Every action at every point that can be. */
export const casesOf = (operation: Operation, points: readonly Point[]): readonly Case[] =>
  everywhere(points).map((failing) => ({ operation, ...failing }));

/** Arms one failpoint after the other, and looks at what is there after each. */
export async function runMatrix(
  cases: readonly Case[],
  options: MatrixOptions,
): Promise<MatrixResult> {
  const queue = new CaseQueue(cases);
  const failures: string[] = [];
  await Promise.all(
    Array.from({ length: options.workers }, () => workThrough(queue, failures, options)),
  );
  return { cases: queue.visited, missed: queue.missed, failures };
}

/** What is to be visited, an operation after the other; those that end the bystander come last. */
class CaseQueue {
  visited = 0;
  /** Points that were not come by and only look. */
  missed = 0;
  readonly #waiting: Queued[];

  constructor(cases: readonly Case[]) {
    const of = (operation: Operation): Queued[] =>
      cases
        .filter((each) => each.operation === operation)
        .map((visited) => ({ visited, again: undefined, attempt: 1 }));
    this.#waiting = [
      ...(["create", "clone", "undo", "delete", "again"] as const).flatMap(of),
      ...allChanges.flatMap(of),
      ...paired(of("recover")),
      ...of("reattach"),
      ...(["start", "down"] as const).flatMap(of),
    ];
  }

  take(): Queued | undefined {
    return this.#waiting.shift();
  }

  /** Puts a case back to be tried again, before those that end the bystander. */
  putBack(queued: Queued): void {
    const at = this.#waiting.findIndex(({ visited }) => endsAll(visited.operation));
    if (at < 0 || endsAll(queued.visited.operation)) this.#waiting.push(queued);
    else this.#waiting.splice(at, 0, queued);
  }

  /** Leaves the rest. */
  clear(): void {
    this.#waiting.length = 0;
  }
}

/**
 * Recoveries that are killed, two and two: the later point first, since the recovery after it
 * passes the earlier one.
 */
function paired(queued: readonly Queued[]): Queued[] {
  const kills = queued.filter(({ visited }) => visited.action === "kill");
  const half = Math.ceil(kills.length / 2);
  const pairs = kills.slice(half).map((later, index): Queued => {
    const earlier = kills[index]?.visited.point;
    return earlier === undefined ? later : { ...later, again: earlier };
  });
  const alone = kills.slice(pairs.length, half);
  return [...pairs, ...alone, ...queued.filter(({ visited }) => visited.action !== "kill")];
}

/** Labs have names, which are the sandbox's. */
let labs = 0;

/**
 * Takes cases until none is left, in one lab after the other: a new one where the last is not fit
 * for what comes.
 */
async function workThrough(
  queue: CaseQueue,
  failures: string[],
  options: MatrixOptions,
): Promise<void> {
  let current = queue.take();
  while (current !== undefined) {
    await using worker = await openWorker(`crash${labs++}`, options.config);
    const baselines = await begin(worker, armedFor(current.visited));
    for (let fit = true; fit && current !== undefined; ) {
      const next = queue.take();
      const begun = performance.now();
      const outcome = await visit({
        worker,
        baselines,
        visited: current.visited,
        again: current.again,
        next: next === undefined ? [] : armedFor(next.visited),
      });
      const ms = Math.round(performance.now() - begun);
      options.log(`${outcome.kind} ${ms} ms ${title(current.visited)} ${current.again ?? ""}`);
      if (outcome.kind === "wrong") options.log(outcome.problems.join("\n"));
      note(outcome, current, queue, failures);
      if (failures.length >= mostFailures) queue.clear();
      // What was put back meanwhile has not been armed, and may need the bystander.
      const bereft =
        endsAll(current.visited.operation) &&
        next !== undefined &&
        !endsAll(next.visited.operation);
      fit = outcome.kind !== "wrong" && next !== undefined && !bereft;
      current = next ?? queue.take();
    }
  }
}

function note(outcome: Outcome, done: Queued, queue: CaseQueue, failures: string[]): void {
  const { visited, again, attempt } = done;
  switch (outcome.kind) {
    case "clean":
      queue.visited += 1;
      if (again === undefined) break;
      // The recovery before may have left it nothing to do there.
      if (outcome.again) queue.visited += 1;
      else queue.putBack({ visited: { ...visited, point: again }, again: undefined, attempt: 1 });
      break;
    case "unreached":
      if (again !== undefined)
        queue.putBack({ visited: { ...visited, point: again }, again: undefined, attempt: 1 });
      if (attempt < attempts) queue.putBack({ visited, again: undefined, attempt: attempt + 1 });
      else if (looks.test(parse(visited.point).name) && queue.missed < mostMissed)
        queue.missed += 1;
      else failures.push(`${title(visited)}: not reached`);
      break;
    case "wrong":
      queue.visited += 1;
      failures.push([title(visited), ...outcome.problems].join("\n  "));
      break;
  }
}
