import { setTimeout as delay } from "node:timers/promises";
import { isPodnetError } from "../../core/errors.ts";
import { armed } from "./arming.ts";
import { attach } from "./attached.ts";
import { unreached } from "./inspect.ts";
import type { Worker } from "./worker.ts";
import { judged, type Outcome, type Visit } from "./outcome.ts";
import { restart, started, subject } from "./pods.ts";
import { looked } from "./visit-change.ts";
import { passes, timeout } from "./visit-node.ts";

/** A start of podnetd that finds a foreign machine again. */
export async function visitReattach(how: Visit): Promise<Outcome> {
  const { worker, visited, next } = how;
  const { point, action } = visited;
  const problems: string[] = [];
  await attach(worker);
  await worker.kill();
  const start = await worker.start([armed(point, action)]);
  if (action === "kill") {
    if ((await worker.ended(timeout.pointMs)) === undefined) return unreached(how);
  } else {
    if (!(await passes(worker, point))) return unreached(how);
    const ended = start.kind === "ended" || !(await livesOn(worker));
    const log = worker.log();
    if (ended && !(log.includes("Cannot start") && log.includes("Injected failure")))
      problems.push("it ends and does not report the failure");
  }
  await worker.kill();
  await started(worker, []);
  const { pods } = await worker.client.pods.list({});
  if (!pods.some(({ name }) => name === subject)) problems.push("the subject is gone");
  problems.push(...(await looked(how, "attach", "after the restart", true)));
  await restart(worker, next);
  return judged(problems, worker);
}

/**
 * Whether podnetd goes on until nothing is amiss with any pod any more; false when it has ended.
 */
async function livesOn(worker: Worker): Promise<boolean> {
  for (const deadline = performance.now() + timeout.deadlineMs; ; await delay(50)) {
    try {
      const { pods } = await worker.client.pods.list({});
      if (pods.every(({ reason }) => reason === "")) return true;
    } catch (thrown) {
      // One that fails at its very end has taken connections by then.
      if (!isPodnetError(thrown) || (await worker.ended()) === undefined) throw thrown;
      return false;
    }
    if (performance.now() > deadline) throw new Error("What failed is not put right");
  }
}
