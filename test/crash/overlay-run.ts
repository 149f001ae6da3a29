import { isPodnetError } from "../../core/errors.ts";
import { armed } from "./arming.ts";
import type { Start } from "./worker.ts";
import { type Backend, openOverlayWorker, type OverlayWorker } from "./overlay-worker.ts";
import { type Footing, ownLeases, converged } from "./overlay-look.ts";
import { leftNothing, overlayActs, type OverlayOperation } from "./overlay-operations.ts";
import { started } from "./pods.ts";
import type { Action, Point } from "./points.ts";
import { type CaseVisits, everywhere, type Failing } from "./visit-all.ts";
import { passes, timeout } from "./visit-node.ts";

/** One failpoint of a host's part of an overlay, and what is done at it. */
export interface OverlayCase extends Failing {
  readonly backend: Backend;
  readonly operation: OverlayOperation;
}

const overlayTitle = ({ backend, operation, point, action }: OverlayCase): string =>
  `${backend} ${operation} ${point}=${action}`;

/** Some actions at every point where they can be, all unless given. */
export const overlayCases = (
  of: Pick<OverlayCase, "backend" | "operation">,
  points: readonly Point[],
  actions?: readonly Action[],
): readonly OverlayCase[] => everywhere(points, actions).map((failing) => ({ ...of, ...failing }));

/** Longest from the end of an act to the last point it comes by, milliseconds. */
const afterActMs = 2000;

/**
 * How these cases of one backend are visited, in these workers and in others; `config` is of a
 * podnetd that knows of no overlay.
 */
export const overlayVisits = (
  cases: readonly OverlayCase[],
  ready: readonly [OverlayWorker, ...OverlayWorker[]],
  config: string,
): CaseVisits<OverlayCase, OverlayWorker> => ({
  cases,
  ready,
  open: (number) => openOverlayWorker(`crasho${number}`, ready[0].backend, config),
  title: overlayTitle,
  visit,
});

/** What is wrong after it; undefined when podnetd did not come by the point. */
async function visit(
  site: OverlayWorker,
  { operation, point, action }: OverlayCase,
): Promise<readonly string[] | undefined> {
  const { worker } = site;
  const { starts, prepare, act, footings } = overlayActs[operation];
  await prepare(site);
  await worker.kill();
  const start = await worker.start([armed(point, action)]);
  if (!starts) await actUnlessEnded(site, act);
  const limitMs = starts ? timeout.pointMs : afterActMs;
  const reached =
    action === "kill"
      ? (await worker.ended(limitMs)) !== undefined
      : await passes(worker, point, limitMs);
  if (!reached) return await unreached(site);
  const known = await ownLeases(site);
  const problems: string[] = [];
  const reported = (found: readonly string[], when: string): void => {
    problems.push(...found.map((problem) => `${when}: ${problem}`));
  };
  if (action !== "kill") reported(await livesOn(site, start, footings), "before the restart");
  await worker.kill();
  await started(worker, []);
  const { footing, problems: after } = await converged(site, footings);
  reported(after, "after the restart");
  const own = await ownLeases(site);
  const were = known.map(([subnet, { BackendData }]) => `${subnet} ${BackendData?.VtepMAC}`).join();
  const are = own.map(([subnet, { BackendData }]) => `${subnet} ${BackendData?.VtepMAC}`).join();
  if (footing === "member" && were !== "" && were !== are)
    reported([`its lease was ${were} and is ${are}`], "after the restart");
  if (operation === "join") problems.push(...(await leftNothing(site)));
  return problems;
}

/**
 * Either it says why it cannot start, at its very end too, or it lives on and puts right what
 * failed.
 */
async function livesOn(
  site: OverlayWorker,
  start: Start,
  footings: readonly Footing[],
): Promise<readonly string[]> {
  const { worker } = site;
  if (start.kind === "ready") {
    try {
      return (await converged(site, footings)).problems;
    } catch (thrown) {
      if (!isPodnetError(thrown) || (await worker.ended()) === undefined) throw thrown;
    }
  }
  const log = worker.log();
  const says = log.includes("Cannot start") && log.includes("Injected failure");
  return says ? [] : [`it ends and does not report the failure:\n${log}`];
}

/** (Killed at a point that its start came by, it leaves what a start leaves.) */
async function actUnlessEnded(
  site: OverlayWorker,
  act: (site: OverlayWorker) => Promise<void>,
): Promise<void> {
  try {
    await converged(site, ["member"]);
    await act(site);
  } catch (thrown) {
    if ((await site.worker.ended()) === undefined) throw thrown;
  }
}

async function unreached(site: OverlayWorker): Promise<undefined> {
  await site.worker.kill();
  await started(site.worker, []);
  return undefined;
}
