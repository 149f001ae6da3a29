import { type Call, describe, type Outcome } from "./history.ts";
import { absent, moves, type PodState, type Progress } from "./pod-model.ts";

/** A way things may have been: the pod's state, and how far the calls under way have come. */
interface Way {
  readonly state: PodState;
  readonly progress: ReadonlyMap<number, Progress>;
}

/** More ways than this at a time are no check any more, but a hang. */
const mostWays = 100_000;

/**
 * Whether the calls about one name can be explained: whether each can be given moments between its
 * beginning and its end at which its steps were taken, so that all answers are right (Herlihy and
 * Wing's linearizability, with several steps for a call). Answers what cannot be explained, or
 * undefined.
 *
 * The search goes along time (Lowe's just-in-time linearization): calls take their steps as late as
 * they may, when one of them returns. Names are independent of each other, so each is searched
 * alone. A look changes nothing and is taken as soon as it is right: to have it behind you never
 * does harm.
 */
export function unexplained(calls: readonly Call[]): string | undefined {
  let ways = new Map<string, Way>([keyed({ state: absent, progress: new Map() })]);
  const open = new Set<number>();
  for (const { index, begins } of inOrder(calls)) {
    const call = calls[index] as Call;
    if (begins) {
      open.add(index);
      ways = unique([...ways.values()].map((way) => looked(begin(way, index), calls)));
      continue;
    }
    const after = finish(ways, index, calls);
    if (after.size === 0)
      return explain(
        call,
        [...open].map((one) => calls[one] as Call),
        ways,
      );
    open.delete(index);
    ways = unique([...after.values()].map((way) => forget(way, index)));
  }
  return undefined;
}

interface Moment {
  readonly index: number;
  readonly begins: boolean;
}

/**
 * Beginnings and ends in their order; of those at the same time beginnings first, which allows
 * more.
 */
function inOrder(calls: readonly Call[]): readonly Moment[] {
  return calls
    .flatMap(({ invoked, returned }, index) => [
      { index, begins: true, at: invoked },
      { index, begins: false, at: returned },
    ])
    .toSorted((a, b) => a.at - b.at || Number(b.begins) - Number(a.begins));
}

/** All ways in which the call is done, with no more steps taken than that needs. */
function finish(
  ways: ReadonlyMap<string, Way>,
  index: number,
  calls: readonly Call[],
): Map<string, Way> {
  const finished: Way[] = [];
  const known = new Set(ways.keys());
  const queue = [...ways.values()];
  for (let way = queue.pop(); way !== undefined; way = queue.pop()) {
    if (way.progress.get(index) === "done") {
      finished.push(way);
      continue;
    }
    for (const next of steps(way, calls)) {
      const [key] = keyed(next);
      if (known.has(key)) continue;
      known.add(key);
      queue.push(next);
    }
    if (known.size > mostWays) throw new Error("Too many calls at a time to be checked");
  }
  return unique(finished);
}

function steps(way: Way, calls: readonly Call[]): Way[] {
  return [...way.progress].flatMap(([index, progress]) => {
    if (progress === "done") return [];
    return moves(calls[index] as Call, index, progress, way.state).map(({ state, progress: now }) =>
      looked({ state, progress: new Map(way.progress).set(index, now) }, calls),
    );
  });
}

/**
 * What changes nothing at any moment. Others may, though not now: a delete that cuts the next start
 * short, say.
 */
const looks: ReadonlySet<Outcome["kind"]> = new Set([
  "seen",
  "taken",
  "absent",
  "busy",
  "exhausted",
  "nothing",
] as const);

/** Takes the looks that are right now. */
function looked(way: Way, calls: readonly Call[]): Way {
  const progress = new Map(way.progress);
  for (const [index, before] of way.progress) {
    if (before === "done" || !looks.has((calls[index] as Call).outcome.kind)) continue;
    for (const move of moves(calls[index] as Call, index, before, way.state))
      if (move.state === way.state || same(move.state, way.state))
        progress.set(index, move.progress);
  }
  return { state: way.state, progress };
}

const same = (a: PodState, b: PodState): boolean => JSON.stringify(a) === JSON.stringify(b);

const begin = ({ state, progress }: Way, index: number): Way => ({
  state,
  progress: new Map(progress).set(index, 0),
});

function forget({ state, progress }: Way, index: number): Way {
  const rest = new Map(progress);
  rest.delete(index);
  return { state, progress: rest };
}

function keyed(way: Way): readonly [string, Way] {
  const progress = [...way.progress].toSorted(([a], [b]) => a - b);
  return [JSON.stringify([way.state, progress]), way];
}

const unique = (ways: readonly Way[]): Map<string, Way> => new Map(ways.map(keyed));

function explain(call: Call, open: readonly Call[], ways: ReadonlyMap<string, Way>): string {
  const states = new Set([...ways.values()].map(({ state }) => JSON.stringify(state)));
  return [
    "This call cannot be explained:",
    `  ${describe(call)}`,
    "under way alongside it:",
    ...open.filter((one) => one !== call).map((one) => `  ${describe(one)}`),
    "what may have been before:",
    ...[...states].slice(0, 10).map((state) => `  ${state}`),
  ].join("\n");
}

/** Checks every name of a history by itself. */
export function unexplainedOf(history: readonly Call[]): string | undefined {
  for (const [, calls] of Map.groupBy(history, ({ name }) => name)) {
    const why = unexplained(calls);
    if (why !== undefined) return why;
  }
  return undefined;
}
