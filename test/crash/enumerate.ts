import { setTimeout as delay } from "node:timers/promises";
import { almost, countedFrom } from "./arming.ts";
import { attach } from "./attached.ts";
import type { Worker } from "./worker.ts";
import { type Change, changes, extra } from "./changes.ts";
import { bystander, create, goDown, remove, restart, started, subject } from "./pods.ts";
import { byChance, looks, type Operation, parse, type Point, pointsIn } from "./points.ts";
import { isServiceChange, endService } from "./services.ts";
import { startAgain } from "./visit.ts";

/** What a recovery still does once podnetd takes connections: it reaches the agents. */
const quietMs = 500;

/**
 * The failpoints of an operation: what podnetd records of it, under the conditions in which `visit`
 * arms them. It is run several times, and what one run lacks is left out: what waits for the kernel
 * asks it once more or once less. The worker has no podnetd, or one that may be killed.
 */
export async function enumerate(
  worker: Worker,
  operation: Exclude<Operation, Change>,
): Promise<readonly Point[]> {
  const records: (readonly string[])[] = [];
  for (let run = 1; run <= 3; run++) records.push(await runs[operation](worker));
  return pointsIn(...records).filter((point) => !byChance(operation, point));
}

/**
 * The failpoints of changes, each as often as `times`, one after the other by one podnetd: what it
 * records is counted anew from where each is armed. What only looks is left out: looks for drift
 * fall in between as they please, and a kill at one leaves what a kill at its neighbour leaves.
 */
export async function enumerateChanges(
  worker: Worker,
  of: readonly Change[],
  times: number,
): Promise<ReadonlyMap<Change, readonly Point[]>> {
  await restart(worker, []);
  const records = new Map<Change, (readonly string[])[]>();
  for (let run = 1; run <= times; run++)
    for (const change of of) {
      const { from, prepare, change: act } = changes[change];
      const before = worker.record().length;
      await prepare(worker);
      const prepared = worker.record().length;
      await act(worker);
      const record = countedAnew(worker.record().slice(before), from, prepared - before);
      records.set(change, [...(records.get(change) ?? []), record]);
      if (isServiceChange(change)) await endService(worker);
      await remove(worker, subject);
      await worker.client.networks.delete({ name: extra });
    }
  return new Map(
    Array.from(records, ([change, each]) => [
      change,
      pointsIn(...each).filter((point) => !looks.test(parse(point).name)),
    ]),
  );
}

/** A record as one that began at the first `from`, without what came before `prepared`. */
export function countedAnew(
  record: readonly string[],
  from: string,
  prepared: number,
): readonly string[] {
  const passed = new Map<string, number>();
  const first = record.findIndex((line) => line.startsWith(`${from}#`));
  if (first < 0) throw new Error(`${from} was not passed`);
  return record.flatMap((line, at) => {
    if (at < first) return [];
    const side = line.slice(0, line.lastIndexOf("#"));
    const number = (passed.get(side) ?? 0) + 1;
    passed.set(side, number);
    return at < prepared ? [] : [`${side}#${number}`];
  });
}

const runs: Readonly<
  Record<Exclude<Operation, Change>, (worker: Worker) => Promise<readonly string[]>>
> = {
  start: async (worker) => {
    await restart(worker, []);
    await goDown(worker);
    worker.forget();
    await started(worker, []);
    await delay(quietMs);
    return worker.record();
  },

  create: async (worker) => {
    await restart(worker, countedFrom.create);
    await create(worker, subject);
    return recordBefore(worker, () => remove(worker, subject));
  },

  clone: async (worker) => {
    await restart(worker, countedFrom.clone);
    await create(worker, subject, { factory: "template" });
    return recordBefore(worker, () => remove(worker, subject));
  },

  undo: async (worker) => {
    await restart(worker, countedFrom.undo);
    await create(worker, subject).catch(() => {});
    // Without the call that fails: what follows it is the undo.
    return worker.record().filter((line) => line !== almost);
  },

  delete: async (worker) => {
    await restart(worker, countedFrom.delete);
    await create(worker, subject);
    await remove(worker, subject);
    return worker.record();
  },

  again: async (worker) => {
    await restart(worker, countedFrom.again);
    await create(worker, subject);
    await startAgain(worker);
    return recordBefore(worker, () => remove(worker, subject));
  },

  down: async (worker) => {
    await restart(worker, countedFrom.down);
    const { pods } = await worker.client.pods.list({});
    if (pods.length === 0) await create(worker, bystander);
    await goDown(worker);
    const record = worker.record();
    await started(worker, []);
    return record;
  },

  recover: async (worker) => {
    await restart(worker, ["from:commit:claim:before"]);
    const { pods } = await worker.client.pods.list({});
    if (!pods.some(({ name }) => name === bystander)) await create(worker, bystander);
    await restart(worker, ["from:commit:claim:before", `${almost}=kill`]);
    await create(worker, subject).catch(() => {});
    await worker.ended();
    await started(worker, []);
    await delay(quietMs);
    return worker.record();
  },

  reattach: async (worker) => {
    await restart(worker, []);
    const { pods } = await worker.client.pods.list({});
    if (!pods.some(({ name }) => name === bystander)) await create(worker, bystander);
    await attach(worker);
    await restart(worker, []);
    await delay(quietMs);
    return recordBefore(worker, () => remove(worker, subject));
  },
};

async function recordBefore(worker: Worker, undo: () => Promise<void>): Promise<readonly string[]> {
  const record = worker.record();
  await undo();
  return record;
}
