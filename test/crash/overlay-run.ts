import { isPodnetError } from "../../core/errors.ts";
import { armed } from "./arming.ts";
import type { Start } from "./lane.ts";
import { type Backend, openOverlayLane, type OverlayLane } from "./overlay-lane.ts";
import { type Footing, ownLeases, settled } from "./overlay-look.ts";
import { leftNothing, overlayActs, type OverlayOperation } from "./overlay-operations.ts";
import { started } from "./pods.ts";
import { type Action, impossible, type Point } from "./points.ts";
import { passes, patience } from "./visit-node.ts";

/** One failpoint of a host's part of an overlay, and what is done at it. */
export interface OverlayCase {
  readonly backend: Backend;
  readonly operation: OverlayOperation;
  readonly point: Point;
  readonly action: Action;
}

export const overlayTitle = ({ backend, operation, point, action }: OverlayCase): string =>
  `${backend} ${operation} ${point}=${action}`;

/** Some actions at every point where they can be. */
export const overlayCases = (
  of: Pick<OverlayCase, "backend" | "operation">,
  points: readonly Point[],
  actions: readonly Action[] = ["kill", "error", "hang"],
): readonly OverlayCase[] =>
  points
    .flatMap((point) => actions.map((action): OverlayCase => ({ ...of, point, action })))
    .filter((each) => !impossible(each));

export interface OverlayRunOptions {
  /** Of a podnetd that knows of no overlay. */
  readonly config: string;
  readonly lanes: number;
  /** The first lane, if there is one already. */
  readonly first?: OverlayLane;
  log(text: string): void;
}

export interface OverlayRunResult {
  readonly visited: number;
  /** Points that were not come by again: two tasks of podnetd do not always take turns as they did. */
  readonly missed: readonly string[];
  readonly failures: readonly string[];
}

/** Times a point is armed before it counts as one that cannot be reached. */
const attempts = 3;
/** Longest from the end of an act to the last point it comes by, milliseconds. */
const afterActMs = 2000;
/** Failures shown before a run gives up: one defect fails many cases. */
const mostFailures = 12;

let labs = 0;

/** Visits cases, those of one backend in one go: a lane has one backend. */
export async function runOverlayCases(
  cases: readonly OverlayCase[],
  options: OverlayRunOptions,
): Promise<OverlayRunResult> {
  const waiting = [...cases];
  const failures: string[] = [];
  const missed: string[] = [];
  let visited = 0;
  let { first } = options;
  const open = async (backend: Backend): Promise<OverlayLane> => {
    const given = first;
    first = undefined;
    return given ?? openOverlayLane(`crasho${labs++}`, backend, options.config);
  };
  const work = async (): Promise<void> => {
    for (let next = waiting.shift(); next !== undefined; ) {
      const { backend } = next;
      await using site = await open(backend);
      for (let fit = true; fit && next?.backend === backend; next = waiting.shift()) {
        const begun = performance.now();
        const problems = await visitAgain(site, next);
        const took = Math.round(performance.now() - begun);
        options.log(
          `${problems === undefined ? "unreached" : problems.length === 0 ? "clean" : "wrong"} ${took} ms ${overlayTitle(next)}`,
        );
        if (problems === undefined) missed.push(overlayTitle(next));
        else visited += 1;
        fit = problems?.length === 0;
        if (problems !== undefined && problems.length > 0) {
          options.log(problems.join("\n"));
          failures.push([overlayTitle(next), ...problems].join("\n  "));
          if (failures.length >= mostFailures) waiting.length = 0;
        }
      }
    }
  };
  await Promise.all(Array.from({ length: options.lanes }, work));
  return { visited, missed, failures };
}

async function visitAgain(
  site: OverlayLane,
  visited: OverlayCase,
): Promise<readonly string[] | undefined> {
  for (let attempt = 1; attempt <= attempts; attempt++) {
    try {
      const problems = await visit(site, visited);
      if (problems !== undefined)
        return problems.length === 0 ? [] : [...problems, `podnetd said:\n${site.lane.log()}`];
    } catch (thrown) {
      const { stack } = thrown as Error;
      return [stack ?? String(thrown), site.lane.log()];
    }
  }
  return undefined;
}

/** What is wrong after it; undefined when podnetd did not come by the point. */
async function visit(
  site: OverlayLane,
  { operation, point, action }: OverlayCase,
): Promise<readonly string[] | undefined> {
  const { lane } = site;
  const { starts, prepare, act, footings } = overlayActs[operation];
  await prepare(site);
  await lane.kill();
  const start = await lane.start([armed(point, action)]);
  if (!starts) await actUnlessEnded(site, act);
  const limitMs = starts ? patience.pointMs : afterActMs;
  const reached =
    action === "kill"
      ? (await lane.ended(limitMs)) !== undefined
      : await passes(lane, point, limitMs);
  if (!reached) return await unreached(site);
  const known = await ownLeases(site);
  const problems: string[] = [];
  const told = (found: readonly string[], when: string): void => {
    problems.push(...found.map((problem) => `${when}: ${problem}`));
  };
  if (action !== "kill") told(await livesOn(site, start, footings), "before the restart");
  await lane.kill();
  await started(lane, []);
  const { footing, problems: after } = await settled(site, footings);
  told(after, "after the restart");
  const own = await ownLeases(site);
  const were = known.map(([subnet, { BackendData }]) => `${subnet} ${BackendData?.VtepMAC}`).join();
  const are = own.map(([subnet, { BackendData }]) => `${subnet} ${BackendData?.VtepMAC}`).join();
  if (footing === "member" && were !== "" && were !== are)
    told([`its lease was ${were} and is ${are}`], "after the restart");
  if (operation === "join") problems.push(...(await leftNothing(site)));
  return problems;
}

/** Either it says why it cannot start, at its very end too, or it lives on and puts right what failed. */
async function livesOn(
  site: OverlayLane,
  start: Start,
  footings: readonly Footing[],
): Promise<readonly string[]> {
  const { lane } = site;
  if (start.kind === "ready") {
    try {
      return (await settled(site, footings)).problems;
    } catch (thrown) {
      if (!isPodnetError(thrown) || (await lane.ended(5000)) === undefined) throw thrown;
    }
  }
  const log = lane.log();
  const says = log.includes("Cannot start") && log.includes("Injected failure");
  return says ? [] : [`it ends and does not tell of the failure:\n${log}`];
}

/** (Killed at a point that its start came by, it leaves what a start leaves.) */
async function actUnlessEnded(
  site: OverlayLane,
  act: (site: OverlayLane) => Promise<void>,
): Promise<void> {
  try {
    await settled(site, ["member"]);
    await act(site);
  } catch (thrown) {
    if ((await site.lane.ended(1000)) === undefined) throw thrown;
  }
}

async function unreached(site: OverlayLane): Promise<undefined> {
  await site.lane.kill();
  await started(site.lane, []);
  return undefined;
}
