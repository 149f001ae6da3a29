import { setTimeout as delay } from "node:timers/promises";
import { type Pod, PodState as State } from "../../api/gen/podnet/v1/pod_pb.ts";
import { isPodnetError } from "../../core/errors.ts";
import { addressOf, execIn } from "../vm/daemon-rig.ts";
import type { Lane } from "./lane.ts";
import type { Action, Case, Operation, Point } from "./points.ts";

/** How a visit ended. */
export type Outcome =
  /** Nothing is amiss; `again`: the second point was reached too. */
  | { readonly kind: "clean"; readonly again: boolean }
  /** podnetd did not come by the point. */
  | { readonly kind: "unreached" }
  /** Something is left, lost or inconsistent. */
  | { readonly kind: "wrong"; readonly problems: readonly string[] };

/** A pod that runs beside every case and must not notice. */
export const bystander = "bystander";
/** The pod that things happen to. */
export const subject = "subject";

/** Milliseconds a create may take where one call hangs, and how long that call hangs. */
const hanging = { createMs: 2500, callMs: 3500 } as const;
export const patientMs = 20_000;

/** The last crossing before a pod runs: killed there, podnetd leaves everything of it but that it runs. */
export const almost = "commit:running:before#1";

const armedDelete = "from:commit:deleting:before";

const armed = (point: Point, action: Action): string =>
  `${point}=${action === "hang" ? `hang:${hanging.callMs}` : action}`;

/** The failpoints of the podnetd that a case begins with. */
export function armedFor({ operation, point, action }: Case): readonly string[] {
  return {
    create: ["from:commit:claim:before", armed(point, action)],
    delete: [armedDelete, armed(point, action)],
    recover: ["from:commit:claim:before", armed(almost, "kill")],
    start: [],
  }[operation];
}

/** What the lane looks like with nothing but the bystander, and with nothing but the daemon. */
export interface Baselines {
  readonly withBystander: string;
  readonly alone: string;
}

/** Makes the lane ready for cases: podnetd runs as the first case wants it, and the bystander with it. */
export async function begin(lane: Lane, first: readonly string[]): Promise<Baselines> {
  await started(lane, []);
  const alone = await lane.inventory();
  await create(lane, bystander, patientMs);
  await lane.kill();
  await started(lane, first);
  const withBystander = await lane.inventory();
  return { alone, withBystander };
}

export interface Visit {
  readonly lane: Lane;
  readonly baselines: Baselines;
  readonly visited: Case;
  /** For `recover` with `kill`: the point of the recovery after that one. */
  readonly again: Point | undefined;
  /** The failpoints of the podnetd that the next case begins with: this one's restart. */
  readonly next: readonly string[];
}

/** Carries out one case. The lane is to be thrown away after a `wrong` one. */
export async function visit(how: Visit): Promise<Outcome> {
  try {
    return await visits[how.visited.operation](how);
  } catch (thrown) {
    const { stack } = thrown as Error;
    return { kind: "wrong", problems: [stack ?? String(thrown), how.lane.log()] };
  }
}

const visits: Readonly<Record<Operation, (how: Visit) => Promise<Outcome>>> = {
  create: (how) => visitLive(how, () => create(how.lane, subject, limitOf(how.visited))),
  delete: async (how) => {
    await create(how.lane, subject, patientMs);
    return await visitLive(how, () => remove(how.lane, subject));
  },
  recover: visitRecovery,
  start: visitStart,
};

const limitOf = ({ action }: Case): number => (action === "hang" ? hanging.createMs : patientMs);

/** An operation asked of a running podnetd that is armed for it. */
async function visitLive(how: Visit, operation: () => Promise<unknown>): Promise<Outcome> {
  const { lane, visited, next } = how;
  const problems: string[] = [];
  await operation().catch((thrown: unknown) => {
    if (!isPodnetError(thrown)) throw thrown;
    // What went wrong first is what is told of, whatever became of it on the way.
    const told = `${thrown.message} ${lane.log()}`.includes("Injected failure");
    if (visited.action === "error" && !told)
      problems.push(`podnetd does not tell of the failure but of ${thrown.message}`);
  });
  if (visited.action === "kill") {
    if ((await lane.ended(2000)) === undefined) return unreached(how);
  } else {
    if (!lane.record().includes(visited.point)) return unreached(how);
    // A delete that failed leaves a pod that says so, and can be deleted.
    const mayHaveFailed = visited.operation === "delete";
    problems.push(...(await inspect(how, "before the restart", { mayHaveFailed })));
    await lane.kill();
  }
  await started(lane, next);
  problems.push(...(await inspect(how, "after the restart", { next })));
  return judged(problems, lane);
}

/** A start with a running pod and one that is half made. */
async function visitRecovery(how: Visit): Promise<Outcome> {
  const { lane, visited, again, next } = how;
  const { point, action } = visited;
  const made = await create(lane, subject, patientMs).then(
    () => "made",
    (thrown: unknown) => String(thrown),
  );
  if ((await lane.ended(5000)) === undefined)
    throw new Error(`podnetd should have died at ${almost} and lives; the pod: ${made}`);
  await lane.start([armed(point, action)]);
  let twice = false;
  if (action === "kill") {
    if ((await lane.ended(3000)) === undefined) return unreached(how);
    if (again !== undefined) {
      await lane.start([armed(again, "kill")]);
      twice = (await lane.ended(1000)) !== undefined;
    }
  } else if (!(await passes(lane, point))) return unreached(how);
  await lane.kill();
  await started(lane, next);
  const problems = await inspect(how, "after the restart", { next });
  return judged(problems, lane, twice);
}

/** A first start: nothing on the host, nothing in the state directory. */
async function visitStart(how: Visit): Promise<Outcome> {
  const { lane, visited, baselines, next } = how;
  await lane.client.node.down({});
  if ((await lane.ended(30_000)) === undefined) throw new Error("podnetd does not go down");
  lane.forget();
  const { point, action } = visited;
  await lane.start([armed(point, action)]);
  // The last of them come when it takes connections already.
  if (action === "kill" && (await lane.ended(5000)) === undefined) return unreached(how);
  if (!(await passes(lane, point))) return unreached(how);
  await lane.kill();
  await started(lane, next);
  return judged(await lane.changes(baselines.alone), lane);
}

/** Whether podnetd comes by a point, soon. */
async function passes(lane: Lane, point: Point): Promise<boolean> {
  for (const deadline = performance.now() + 5000; performance.now() < deadline; await delay(20))
    if (lane.record().includes(point)) return true;
  return false;
}

/** Goes on to the next case all the same. */
async function unreached({ lane, next }: Visit): Promise<Outcome> {
  await lane.kill();
  await started(lane, next);
  await clear(lane, true, next);
  return { kind: "unreached" };
}

const judged = (problems: readonly string[], lane: Lane, again = false): Outcome =>
  problems.length === 0
    ? { kind: "clean", again }
    : { kind: "wrong", problems: [...problems, `podnetd said:\n${lane.log()}`] };

/**
 * The bystander runs, and the subject runs as well or is not there at all; without it all is as it was. A subject that
 * runs is compared with independent witnesses and reached, and then deleted; one that failed is deleted too.
 */
async function inspect(
  { lane, baselines }: Visit,
  when: string,
  { next = [], mayHaveFailed = false }: { next?: readonly string[]; mayHaveFailed?: boolean },
): Promise<string[]> {
  const problems: string[] = [];
  const { pods } = await lane.client.pods.list({});
  for (const pod of pods) {
    if (mayHaveFailed && pod.name === subject && pod.state === State.FAILED) continue;
    problems.push(...(await unhealthy(lane, pod)));
  }
  if (!pods.some(({ name }) => name === bystander)) problems.push("the bystander is gone");
  await clear(
    lane,
    pods.some(({ name }) => name === subject),
    next,
  );
  // The host learns the bystander's address as soon as it is spoken to.
  const addresses = pods.filter(({ name }) => name === bystander).map(addressOf);
  const learnt = addresses.map((address) => `neighbour dst="${address}"`);
  problems.push(...(await lane.changes(baselines.withBystander, learnt)));
  return problems.map((problem) => `${when}: ${problem}`);
}

/** Deletes the subject, by a podnetd that is not armed for the next delete. */
async function clear(lane: Lane, there: boolean, next: readonly string[]): Promise<void> {
  const disarm = there && next.includes(armedDelete);
  if (disarm) await restart(lane, []);
  await remove(lane, subject);
  if (disarm) await restart(lane, next);
}

async function restart(lane: Lane, failpoints: readonly string[]): Promise<void> {
  await lane.kill();
  await started(lane, failpoints);
}

async function unhealthy(lane: Lane, pod: Pod): Promise<string[]> {
  const { name } = pod;
  if (pod.state !== State.RUNNING)
    return [`${name} is in state ${pod.state} instead of running: ${pod.reason}`];
  const { output } = await execIn(lane.client, name, "echo", "here");
  await lane.lab.host.ping(addressOf(pod));
  const echoed = output === "here\n" ? [] : [`${name} says ${JSON.stringify(output)}`];
  if (name === bystander) return echoed;
  const { ok, checks } = await lane.client.pods.verify({ idOrName: name });
  const differing = checks.filter((check) => !check.ok);
  return ok
    ? echoed
    : [
        ...echoed,
        ...differing.map(
          ({ subject: of, wanted, found }) => `${name}: ${of} is ${found} instead of ${wanted}`,
        ),
      ];
}

export async function started(lane: Lane, failpoints: readonly string[]): Promise<void> {
  const start = await lane.start(failpoints);
  if (start.kind === "ended")
    throw new Error(`podnetd did not start (${start.how}):\n${lane.log()}`);
}

export async function create(lane: Lane, name: string, timeoutMs: number): Promise<void> {
  await lane.client.pods.create({ spec: { name }, timeoutMs });
}

export async function remove(lane: Lane, name: string): Promise<void> {
  await lane.client.pods.delete({ idOrName: name });
}
