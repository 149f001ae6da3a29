import { setTimeout as delay } from "node:timers/promises";
import { PodState as State } from "../../api/gen/podnet/v1/pod_pb.ts";
import { isPodnetError } from "../../core/errors.ts";
import { difference } from "../lab/network.ts";
import { execIn } from "../vm/daemon-rig.ts";
import { almost, armed } from "./arming.ts";
import { inspect, recorded, unhealthy, unreached } from "./inspect.ts";
import type { Worker, Start } from "./worker.ts";
import { bystander, create, goDown, started, subject } from "./pods.ts";
import type { Point } from "./points.ts";
import { judged, type Outcome, type Visit } from "./outcome.ts";

/** Longest a start takes to come by any of its points, and a recovery to converge, milliseconds. */
export const timeout = { pointMs: 8000, deadlineMs: 20_000 } as const;

/** A start with a running pod and one that is half made. */
export async function visitRecovery(how: Visit): Promise<Outcome> {
  const { worker, visited, again, next } = how;
  const { point, action } = visited;
  const problems: string[] = [];
  const made = await create(worker, subject).then(
    () => "made",
    (thrown: unknown) => String(thrown),
  );
  if ((await worker.ended()) === undefined)
    throw new Error(`podnetd should have died at ${almost} and lives; the pod: ${made}`);
  const start = await worker.start([armed(point, action)]);
  let twice = false;
  if (action === "kill") {
    if ((await worker.ended(timeout.pointMs)) === undefined) return unreached(how);
    if (again !== undefined) {
      await worker.start([armed(again, "kill")]);
      twice = (await worker.ended(1500)) !== undefined;
    }
  } else {
    if (!(await passes(worker, point))) return unreached(how);
    problems.push(...(await afterStart(how, start)));
  }
  await worker.kill();
  await started(worker, next);
  problems.push(...(await inspect(how, "after the restart", { next })));
  return judged(problems, worker, twice);
}

/**
 * Either it says why it cannot start, or it starts and lives on. One that fails at its very end has
 * taken connections by then.
 */
async function afterStart(how: Visit, start: Start): Promise<string[]> {
  const { worker } = how;
  if (start.kind === "ready") {
    try {
      return await livesOn(how);
    } catch (thrown) {
      if (!isPodnetError(thrown) || (await worker.ended()) === undefined) throw thrown;
    }
  }
  const log = worker.log();
  const reported = log.includes("Cannot start") && log.includes("Injected failure");
  return reported ? [] : ["it ends and does not report the failure"];
}

/** What failed is tried again: some time later all is as if nothing had. */
async function livesOn(how: Visit): Promise<string[]> {
  const { client } = how.worker;
  for (const deadline = performance.now() + timeout.deadlineMs; ; await delay(50)) {
    const { pods } = await client.pods.list({});
    const converged = pods.every(
      ({ name, state, reason }) => name === bystander && state === State.RUNNING && reason === "",
    );
    if ((converged && (await answers(how.worker))) || performance.now() > deadline) break;
  }
  return await inspect(how, "before the restart", {});
}

/**
 * Whether the bystander's agent is connected: a pod says that it is not only once that has lasted a
 * moment.
 */
async function answers({ client }: Worker): Promise<boolean> {
  try {
    await execIn(client, bystander, "echo", "here");
    return true;
  } catch (thrown) {
    if (isPodnetError(thrown)) return false;
    throw thrown;
  }
}

/** A first start: nothing on the host, nothing in the state directory. */
export async function visitStart(how: Visit): Promise<Outcome> {
  const { worker, visited, baselines, next } = how;
  await goDown(worker);
  worker.forget();
  const { point, action } = visited;
  await worker.start([armed(point, action)]);
  // The last of them come when it takes connections already.
  if (action === "kill" && (await worker.ended(timeout.pointMs)) === undefined)
    return unreached(how);
  if (!(await passes(worker, point))) return unreached(how);
  await worker.kill();
  await started(worker, next);
  return judged(await worker.changes(baselines.alone), worker);
}

/**
 * Takes the node down with a pod on it. Whatever comes of that, the node can be used, or taken down
 * again; then nothing is left on the host.
 */
export async function visitDown(how: Visit): Promise<Outcome> {
  const { worker, visited, baselines, next } = how;
  const { point, action } = visited;
  const { pods } = await worker.client.pods.list({});
  if (pods.length === 0) await create(worker, bystander);
  const withPod = await worker.inventory();
  const problems: string[] = [];
  const refused = await worker.client.node.down({}).then(
    () => undefined,
    (thrown: unknown) => thrown,
  );
  if (refused !== undefined && !isPodnetError(refused)) throw refused;
  if (action === "kill") {
    if ((await worker.ended(5000)) === undefined) return unreached(how);
  } else {
    const ends = refused === undefined && (await worker.ended()) !== undefined;
    if (!worker.record().includes(point)) return unreached(how);
    if (refused === undefined && !ends) problems.push("it says that all is down, and lives on");
    if (ends) problems.push(...(await leftBare(how, "after its end")));
    else problems.push(...(await usable(how, withPod, "before it is asked again")));
    // What was tried again and worked is nothing to report.
    const untold =
      refused !== undefined && !`${refused.message} ${worker.log()}`.includes("Injected");
    if (action === "error" && untold)
      problems.push(`podnetd does not report the failure but of ${refused.message}`);
  }
  if (action === "kill" || refused === undefined) {
    await worker.kill();
    await started(worker, []);
    problems.push(...(await usable(how, withPod, "after the restart")));
  }
  await goDown(worker);
  problems.push(...(await leftBare(how, "after going down again")));
  await started(worker, next);
  problems.push(...(await worker.changes(baselines.alone)));
  return judged(problems, worker);
}

/** Each pod that is there runs, or could not be deleted and says so, and else all is as before. */
async function usable(
  { worker, baselines }: Visit,
  withPod: string,
  when: string,
): Promise<string[]> {
  const { pods } = await worker.client.pods.list({});
  if (pods.some(({ state }) => state === State.FAILED)) return [];
  const problems: string[] = [];
  for (const pod of pods) problems.push(...(await unhealthy(worker, pod)));
  const before = pods.length === 0 ? baselines.alone : withPod;
  problems.push(...(await worker.changes(before, recorded(pods))));
  return problems.map((problem) => `${when}: ${problem}`);
}

/**
 * What stays of a first use: the tables that iptables-nft makes for whoever asks it, and an empty
 * directory.
 */
const stays = /^\+ (?:ip6?tables-nft (?:\*\w+|:\w+ ACCEPT|COMMIT)|file .*\/run\/(?:pods|plans))$/;

/** What has come to the host and gone from it since there was no podnetd. */
export const leftOnHost = async (worker: Worker, bare: string): Promise<string[]> =>
  difference(bare, await worker.bare()).filter((line) => !stays.test(line));

const leftBare = async ({ worker, baselines }: Visit, when: string): Promise<string[]> =>
  (await leftOnHost(worker, baselines.bare)).map((line) => `${when}: ${line}`);

/** Whether podnetd comes by a point, soon. */
export async function passes(
  worker: Worker,
  point: Point,
  limitMs: number = timeout.pointMs,
): Promise<boolean> {
  const deadline = performance.now() + limitMs;
  for (; performance.now() < deadline; await delay(20))
    if (worker.record().includes(point)) return true;
  return false;
}
