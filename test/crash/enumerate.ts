import { setTimeout as delay } from "node:timers/promises";
import { almost, countedFrom } from "./arming.ts";
import { attach } from "./attached.ts";
import type { Lane } from "./lane.ts";
import { type Change, changes, extra } from "./changes.ts";
import { bystander, create, goDown, remove, restart, started, subject } from "./pods.ts";
import { byChance, looks, type Operation, parse, type Point, pointsIn } from "./points.ts";
import { startAgain } from "./visit.ts";

/** What a recovery still does once podnetd takes connections: it reaches the agents. */
const settleMs = 500;

/**
 * The failpoints of an operation: what podnetd records of it, under the conditions in which `visit`
 * arms them. It is run several times, and what one run lacks is left out: what waits for the kernel
 * asks it once more or once less. The lane has no podnetd, or one that may be killed.
 */
export async function enumerate(
  lane: Lane,
  operation: Exclude<Operation, Change>,
): Promise<readonly Point[]> {
  const records: (readonly string[])[] = [];
  for (let run = 1; run <= 3; run++) records.push(await runs[operation](lane));
  return pointsIn(...records).filter((point) => !byChance(operation, point));
}

/**
 * The failpoints of changes, each as often as `times`, one after the other by one podnetd: what it
 * records is counted anew from where each is armed. What only looks is left out: looks for drift
 * fall in between as they please, and a kill at one leaves what a kill at its neighbour leaves.
 */
export async function enumerateChanges(
  lane: Lane,
  of: readonly Change[],
  times: number,
): Promise<ReadonlyMap<Change, readonly Point[]>> {
  await restart(lane, []);
  const records = new Map<Change, (readonly string[])[]>();
  for (let run = 1; run <= times; run++)
    for (const change of of) {
      const { from, prepare, change: act } = changes[change];
      const before = lane.record().length;
      await prepare(lane);
      const prepared = lane.record().length;
      await act(lane);
      const record = countedAnew(lane.record().slice(before), from, prepared - before);
      records.set(change, [...(records.get(change) ?? []), record]);
      await remove(lane, subject);
      await lane.client.networks.delete({ name: extra });
    }
  return new Map(
    Array.from(records, ([change, each]) => [
      change,
      pointsIn(...each).filter((point) => !looks.test(parse(point).name)),
    ]),
  );
}

/** A record as one that began at the first `from`, without what came before `prepared`. */
function countedAnew(record: readonly string[], from: string, prepared: number): readonly string[] {
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
  Record<Exclude<Operation, Change>, (lane: Lane) => Promise<readonly string[]>>
> = {
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

  reattach: async (lane) => {
    await restart(lane, []);
    const { pods } = await lane.client.pods.list({});
    if (!pods.some(({ name }) => name === bystander)) await create(lane, bystander);
    await attach(lane);
    await restart(lane, []);
    await delay(settleMs);
    return recordBefore(lane, () => remove(lane, subject));
  },
};

async function recordBefore(lane: Lane, undo: () => Promise<void>): Promise<readonly string[]> {
  const record = lane.record();
  await undo();
  return record;
}
