import { armed, hanging } from "./arming.ts";
import { type Acted, type ContainerOperation, cleared, containerActs } from "./container-acts.ts";
import { type ContainerWorker, openContainerWorker } from "./container-worker.ts";
import { quiet, converged } from "./container-look.ts";
import { started } from "./pods.ts";
import { type Action, type Point, pointsIn } from "./points.ts";
import { type CaseVisits, everywhere, type Failing } from "./visit-all.ts";
import { passes, timeout } from "./visit-node.ts";

/** One failpoint of something done to containers, and what is done at it. */
export interface ContainerCase extends Failing {
  readonly operation: ContainerOperation;
}

const containerTitle = ({ operation, point, action }: ContainerCase): string =>
  `${operation} ${point}=${action}`;

/** Some actions at every point where they can be, all unless given. */
export const containerCases = (
  operation: ContainerOperation,
  points: readonly Point[],
  actions?: readonly Action[],
): readonly ContainerCase[] =>
  everywhere(points, actions).map((failing) => ({ operation, ...failing }));

/**
 * Longest from the end of an act to the last point it comes by, milliseconds: links are ended a
 * little later.
 */
const afterActMs = 3000;
/** How long a runtime waits where a call hangs for longer. */
const impatientMs = hanging.createMs;

/**
 * How these cases are visited, in these workers and in others whose podnetds have this
 * configuration.
 */
export const containerVisits = (
  cases: readonly ContainerCase[],
  ready: readonly ContainerWorker[],
  config: string,
): CaseVisits<ContainerCase, ContainerWorker> => ({
  cases,
  ready,
  open: (number) => openContainerWorker(`crashc${number}`, config),
  title: containerTitle,
  visit,
});

/**
 * What is wrong after it; undefined when podnetd did not come by the point. podnetd runs before and
 * after, with no container.
 */
async function visit(
  site: ContainerWorker,
  { operation, point, action }: ContainerCase,
): Promise<readonly string[] | undefined> {
  const { worker } = site;
  const { from, prepare, act } = containerActs[operation];
  await prepare(site);
  await worker.kill();
  const start = await worker.start([
    ...(from === undefined ? [] : [`from:${from}`]),
    armed(point, action),
  ]);
  const acted = await act(site, action === "hang" ? impatientMs : timeout.deadlineMs);
  const limitMs = from === undefined ? timeout.pointMs : afterActMs;
  const reached =
    action === "kill"
      ? (await worker.ended(limitMs)) !== undefined
      : await passes(worker, point, limitMs);
  const problems: string[] = [];
  if (reached && action !== "kill")
    problems.push(
      ...(await withoutRestart(
        site,
        action,
        from === undefined ? undefined : acted,
        start.kind === "ready",
      )),
    );
  await worker.kill();
  await started(worker, []);
  problems.push(...report(await converged(site, acted.allowed), "after the restart"));
  problems.push(...report(await cleared(site), "after everything was taken away"));
  return reached ? problems : undefined;
}

const report = (problems: readonly string[], when: string): string[] =>
  problems.map((problem) => `${when}: ${problem}`);

/**
 * A podnetd that lives on has put right what failed, or taken it back; one that refuses, and one
 * that ends, says what failed, to who asked or in its log.
 */
async function withoutRestart(
  site: ContainerWorker,
  action: Action,
  acted: Acted | undefined,
  ready: boolean,
): Promise<readonly string[]> {
  const { worker } = site;
  const untold = (): readonly string[] =>
    action === "hang" || worker.reports(injected) || acted?.reported.includes(injected) === true
      ? []
      : ["podnetd does not report the failure"];
  if (ready && (await worker.ended(0)) === undefined) {
    // Drift repairs what a start could not; nothing waits for that here.
    if (acted === undefined) return [];
    const problems = report(await converged(site, acted.allowed), "before the restart");
    // (What goes down may have answered before it ended.)
    if ((await worker.ended(0)) === undefined)
      return acted.reported === "" ? problems : [...problems, ...untold()];
  }
  return untold();
}

const injected = "Injected failure";

/** The failpoints of an operation: what each of several runs records of it. */
export async function enumerateContainers(
  site: ContainerWorker,
  operation: ContainerOperation,
  times: number,
): Promise<readonly Point[]> {
  const { worker } = site;
  const { from, only = /./, prepare, act } = containerActs[operation];
  const bare = from === undefined ? await startRecord(site) : [];
  const records: (readonly string[])[] = [];
  for (let run = 1; run <= times; run++) {
    await prepare(site);
    await worker.kill();
    await started(worker, from === undefined ? [] : [`from:${from}`]);
    const { allowed } = await act(site, timeout.deadlineMs);
    const alive = (await worker.ended(operation === "down" ? afterActMs : 0)) === undefined;
    if (alive) await quiet(site);
    // Before the look whether all is well, which comes by failpoints of its own.
    records.push(worker.record());
    const problems = alive ? await converged(site, allowed) : [];
    if (problems.length > 0) throw new Error(`Nothing is armed, and still: ${problems.join("\n")}`);
    await worker.kill();
    await started(worker, []);
    const left = await cleared(site);
    if (left.length > 0) throw new Error(`Nothing is armed, and still: ${left.join("\n")}`);
  }
  const known = new Set(bare);
  return pointsIn(...records).filter((point) => only.test(point) && !known.has(point));
}

/** What a start with nothing to do comes by: visited as a start is. */
async function startRecord({ worker }: ContainerWorker): Promise<readonly string[]> {
  await worker.kill();
  await started(worker, []);
  return worker.record();
}
