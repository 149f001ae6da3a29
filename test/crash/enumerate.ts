import { setTimeout as delay } from "node:timers/promises";
import type { Lane } from "./lane.ts";
import { byChance, type Operation, type Point, pointsIn } from "./points.ts";
import { almost, bystander, create, patientMs, remove, started, subject } from "./visit.ts";

/** What a recovery still does once podnetd takes connections: it reaches the agents. */
const settleMs = 500;

/**
 * The failpoints of each operation: what podnetd records of it, under the conditions in which `visit` arms them. Each is
 * run twice, and what only one run has is left out. The lane's podnetd has ended or may be killed.
 */
export async function enumerate(
  lane: Lane,
  operations: readonly Operation[],
): Promise<ReadonlyMap<Operation, readonly Point[]>> {
  const points = new Map<Operation, readonly Point[]>();
  for (const operation of operations) {
    const records = [await runs[operation](lane), await runs[operation](lane)];
    const steady = pointsIn(...records).filter((point) => !byChance(operation, point));
    points.set(operation, steady);
  }
  return points;
}

const runs: Readonly<Record<Operation, (lane: Lane) => Promise<readonly string[]>>> = {
  start: async (lane) => {
    await lane.kill();
    await started(lane, []);
    await lane.client.node.down({});
    await lane.ended(30_000);
    lane.forget();
    await started(lane, []);
    return lane.record();
  },

  create: async (lane) => {
    await lane.kill();
    await started(lane, ["from:commit:claim:before"]);
    await create(lane, subject, patientMs);
    const record = lane.record();
    await remove(lane, subject);
    return record;
  },

  delete: async (lane) => {
    await lane.kill();
    await started(lane, ["from:commit:deleting:before"]);
    await create(lane, subject, patientMs);
    await remove(lane, subject);
    return lane.record();
  },

  recover: async (lane) => {
    await lane.kill();
    await started(lane, ["from:commit:claim:before"]);
    const { pods } = await lane.client.pods.list({});
    if (!pods.some(({ name }) => name === bystander)) await create(lane, bystander, patientMs);
    await lane.kill();
    await started(lane, ["from:commit:claim:before", `${almost}=kill`]);
    await create(lane, subject, patientMs).catch(() => {});
    await lane.ended(5000);
    await started(lane, []);
    await delay(settleMs);
    return lane.record();
  },
};
