import type { PodStats, StatsResponse } from "../../api/gen/podnet/v1/pod_service_pb.ts";
import { size, table } from "./text.ts";

/** A line for each pod, the busiest first. */
export const topTable = ({ pods }: StatsResponse): string =>
  table(
    ["POD", "CPU", "MEMORY", "LIMIT", "RECEIVED", "SENT"],
    pods.toSorted((a, b) => cpuOf(b) - cpuOf(a) || (a.name < b.name ? -1 : 1)).map(line),
  );

/** -1: no rates are known of it. */
const cpuOf = ({ machine }: PodStats): number => machine?.rates?.cpuPercent ?? -1;

function line(pod: PodStats): string[] {
  const { name, machine, interfaces } = pod;
  const mebibytes = (bytes: bigint): string => `${Math.round(Number(bytes) / 2 ** 20)} MiB`;
  const limit = machine?.memoryLimitBytes ?? 0n;
  const rates = interfaces.flatMap((each) => each.rates ?? []);
  const sum = (of: (rate: (typeof rates)[number]) => number): string =>
    rates.length === 0 ? "" : `${size(rates.reduce((total, each) => total + of(each), 0))}/s`;
  return [
    name,
    cpuOf(pod) < 0 ? "" : `${cpuOf(pod).toFixed(1)} %`,
    machine === undefined ? "" : mebibytes(machine.memoryBytes),
    limit === 0n ? "" : mebibytes(limit),
    sum((each) => each.rxBytesPerS),
    sum((each) => each.txBytesPerS),
  ];
}
