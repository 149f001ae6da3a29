import type { BlockDeviceStats } from "./commands.ts";

const counters = ["rd_bytes", "rd_operations", "wr_bytes", "wr_operations"] as const;

const isRecord = (value: unknown): value is Readonly<Record<string, unknown>> =>
  typeof value === "object" && value !== null;

/**
 * The counters of disks by their nodes' names, from an answer to `query-blockstats`; other entries
 * are skipped.
 */
export function parseBlockStats(answer: unknown): ReadonlyMap<string, BlockDeviceStats> {
  const found = new Map<string, BlockDeviceStats>();
  for (const each of Array.isArray(answer) ? (answer as readonly unknown[]) : []) {
    if (!isRecord(each)) continue;
    const { "node-name": node, stats } = each;
    if (typeof node === "string" && isCounted(stats)) found.set(node, stats);
  }
  return found;
}

const isCounted = (stats: unknown): stats is BlockDeviceStats =>
  isRecord(stats) &&
  counters.every((name) => Number.isSafeInteger(stats[name]) && Number(stats[name]) >= 0);
