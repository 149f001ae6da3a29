import { setTimeout as delay } from "node:timers/promises";
import { almost, countedFrom } from "./arming.ts";
import type { Lane } from "./lane.ts";
import { bystander, create, goDown, remove, restart, started, subject } from "./pods.ts";
import { byChance, type Operation, type Point, pointsIn, twinsIn } from "./points.ts";
import { startAgain } from "./visit.ts";

/** What a recovery still does once podnetd takes connections: it reaches the agents. */
const settleMs = 500;

export interface Enumerated {
  readonly points: readonly Point[];
  /** By points of these, others at which a kill leaves the same. */
  readonly twins: ReadonlyMap<Point, Point>;
}

/**
 * The failpoints of an operation: what podnetd records of it, under the conditions in which `visit` arms them. It is run
 * several times, and what one run lacks is left out: what waits for the kernel asks it once more or once less. The lane has no podnetd, or one that may be killed.
 */
export async function enumerate(lane: Lane, operation: Operation): Promise<Enumerated> {
  const records: (readonly string[])[] = [];
  for (let run = 1; run <= 3; run++) records.push(await runs[operation](lane));
  const points = pointsIn(...records).filter((point) => !byChance(operation, point));
  const there = new Set(points);
  // In each run: what runs side by side may be in another order the next time.
  const [first = new Map<Point, Point>(), ...others] = records.map(twinsIn);
  const twins = new Map(
    [...first].filter(
      ([point, twin]) =>
        there.has(point) && there.has(twin) && others.every((each) => each.get(point) === twin),
    ),
  );
  return { points, twins };
}

const runs: Readonly<Record<Operation, (lane: Lane) => Promise<readonly string[]>>> = {
  start: async (lane) => {
    await restart(lane, []);
    await goDown(lane);
    lane.forget();
    await started(lane, []);
    await delay(settleMs);
    return lane.record();
  },

  create: async (lane) => {
    await restart(lane, countedFrom.create);
    await create(lane, subject);
    return recordBefore(lane, () => remove(lane, subject));
  },

  clone: async (lane) => {
    await restart(lane, countedFrom.clone);
    await create(lane, subject, { factory: "template" });
    return recordBefore(lane, () => remove(lane, subject));
  },

  undo: async (lane) => {
    await restart(lane, countedFrom.undo);
    await create(lane, subject).catch(() => {});
    // Without the call that fails: what follows it is the undo.
    return lane.record().filter((line) => line !== almost);
  },

  delete: async (lane) => {
    await restart(lane, countedFrom.delete);
    await create(lane, subject);
    await remove(lane, subject);
    return lane.record();
  },

  again: async (lane) => {
    await restart(lane, countedFrom.again);
    await create(lane, subject);
    await startAgain(lane);
    return recordBefore(lane, () => remove(lane, subject));
  },

  down: async (lane) => {
    await restart(lane, countedFrom.down);
    const { pods } = await lane.client.pods.list({});
    if (pods.length === 0) await create(lane, bystander);
    await goDown(lane);
    const record = lane.record();
    await started(lane, []);
    return record;
  },

  recover: async (lane) => {
    await restart(lane, ["from:commit:claim:before"]);
    const { pods } = await lane.client.pods.list({});
    if (!pods.some(({ name }) => name === bystander)) await create(lane, bystander);
    await restart(lane, ["from:commit:claim:before", `${almost}=kill`]);
    await create(lane, subject).catch(() => {});
    await lane.ended(5000);
    await started(lane, []);
    await delay(settleMs);
    return lane.record();
  },
};

async function recordBefore(lane: Lane, undo: () => Promise<void>): Promise<readonly string[]> {
  const record = lane.record();
  await undo();
  return record;
}
