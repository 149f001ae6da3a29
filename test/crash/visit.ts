import { PodState as State } from "../../api/gen/podnet/v1/pod_pb.ts";
import { isPodnetError } from "../../core/errors.ts";
import { setTimeout as delay } from "node:timers/promises";
import { hanging } from "./arming.ts";
import { type Expected, inspect, unreached } from "./inspect.ts";
import type { Worker } from "./worker.ts";
import { bystander, create, remove, restart, started, subject } from "./pods.ts";
import { type Change, isChange } from "./changes.ts";
import { type Baselines, judged, type Outcome, type Visit } from "./outcome.ts";
import type { Case, Operation } from "./points.ts";
import { visitChange } from "./visit-change.ts";
import { visitReattach } from "./visit-reattach.ts";
import { visitDown, visitRecovery, visitStart } from "./visit-node.ts";

/**
 * Makes the worker ready for cases: podnetd runs as the first case wants it, and the bystander with
 * it.
 */
export async function begin(worker: Worker, first: readonly string[]): Promise<Baselines> {
  const bare = await worker.bare();
  await started(worker, []);
  const alone = await worker.inventory();
  await create(worker, bystander);
  await restart(worker, first);
  const withBystander = await worker.inventory();
  return { bare, alone, withBystander };
}

/** Carries out one case. The worker is to be thrown away after a `wrong` one. */
export async function visit(how: Visit): Promise<Outcome> {
  try {
    const { operation } = how.visited;
    return isChange(operation) ? await visitChange(how, operation) : await visits[operation](how);
  } catch (thrown) {
    const { stack } = thrown as Error;
    return { kind: "wrong", problems: [stack ?? String(thrown), how.worker.log()] };
  }
}

const limitOf = ({ action }: Case): { readonly timeoutMs?: number } =>
  action === "hang" ? { timeoutMs: hanging.createMs } : {};

const visits: Readonly<Record<Exclude<Operation, Change>, (how: Visit) => Promise<Outcome>>> = {
  create: (how) => visitLive(how, () => create(how.worker, subject, limitOf(how.visited))),
  clone: (how) => visitLive(how, () => create(how.worker, subject, { factory: "template" })),
  undo: (how) =>
    visitLive(how, () => create(how.worker, subject), { mayHaveFailed: true, first: "running" }),
  delete: async (how) => {
    await create(how.worker, subject);
    return await visitLive(how, () => remove(how.worker, subject), { mayHaveFailed: true });
  },
  again: async (how) => {
    await create(how.worker, subject);
    return await visitLive(how, () => startAgain(how.worker), { mayHaveFailed: true, stays: true });
  },
  recover: visitRecovery,
  reattach: visitReattach,
  start: visitStart,
  down: visitDown,
};

/** Ends the subject's machine, and starts it again once podnetd has noticed. */
export async function startAgain(worker: Worker): Promise<void> {
  const { pod } = await worker.client.pods.get({ idOrName: subject });
  process.kill(pod?.vm?.pid ?? Number.NaN, "SIGKILL");
  for (const deadline = performance.now() + 20_000; performance.now() < deadline; await delay(10)) {
    const now = await worker.client.pods.get({ idOrName: subject });
    if (now.pod?.state === State.FAILED) break;
  }
  await worker.client.pods.start({ idOrName: subject });
}

/**
 * An operation asked of a running podnetd that is armed for it. `first`: the failure that it has to
 * report.
 */
async function visitLive(
  how: Visit,
  operation: () => Promise<void>,
  { first, ...expected }: Pick<Expected, "mayHaveFailed" | "stays"> & { first?: string } = {},
): Promise<Outcome> {
  const { worker, visited, next } = how;
  const problems: string[] = [];
  await operation().then(
    () => {
      if (first !== undefined) problems.push("nothing failed");
    },
    (thrown: unknown) => {
      if (!isPodnetError(thrown)) throw thrown;
      if (visited.action === "kill") return;
      // What went wrong first is what is reported, whatever became of it on the way.
      const { message } = thrown;
      const reported =
        first === undefined
          ? visited.action === "hang" || `${message} ${worker.log()}`.includes("Injected failure")
          : message.includes(`Injected failure: ${first}`);
      if (!reported) problems.push(`podnetd does not report the failure but of ${message}`);
    },
  );
  if (visited.action === "kill") {
    if ((await worker.ended(5000)) === undefined) return unreached(how);
  } else {
    if (!worker.record().includes(visited.point)) return unreached(how);
    problems.push(...(await inspect(how, "before the restart", expected)));
    await worker.kill();
  }
  // A recovery of a pod that is never lost passes by points of its start.
  const calm = expected.stays === true ? [] : next;
  await started(worker, calm);
  // What failed before the restart has been deleted; after a kill nothing has failed but a start.
  const after = visited.action === "kill" ? { stays: expected.stays === true } : {};
  problems.push(...(await inspect(how, "after the restart", { next: calm, ...after })));
  if (calm !== next) await restart(worker, next);
  return judged(problems, worker);
}
