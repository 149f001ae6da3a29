import type {
  DiskStats,
  InterfaceStats,
  PodStats,
  StatsResponse,
} from "../../api/gen/podnet/v1/pod_service_pb.ts";
import { duration, harmless, size, table } from "./text.ts";

/** Tables of machines' usage, and of the traffic of their interfaces. */
export const statsTables = ({ pods }: StatsResponse): string =>
  `${table(
    ["POD", "CPU", "CPU TIME", "MEMORY", "LIMIT", "DISK READ", "RATE", "DISK WRITTEN", "RATE"],
    pods.map(machineLine),
  )}\n${table(
    ["POD", "INTERFACE", "RX", "PACKETS", "DROPPED", "RATE", "TX", "PACKETS", "DROPPED", "RATE"],
    pods.flatMap(({ name, interfaces }) => interfaces.map((each) => interfaceLine(name, each))),
  )}`;

const perSecond = (bytes: number | undefined): string =>
  bytes === undefined ? "" : `${size(bytes)}/s`;

const mebibytes = (bytes: bigint): string => `${Math.round(Number(bytes) / 2 ** 20)} MiB`;

function machineLine({ name, machine }: PodStats): string[] {
  if (machine === undefined) return [name];
  const { rates, disks, memoryLimitBytes } = machine;
  return [
    name,
    rates === undefined ? "" : `${rates.cpuPercent.toFixed(1)} %`,
    duration(machine.cpuS * 1000),
    mebibytes(machine.memoryBytes),
    memoryLimitBytes === 0n ? "none" : mebibytes(memoryLimitBytes),
    ...diskCells(disks, "readBytes", "readBytesPerS"),
    ...diskCells(disks, "writeBytes", "writeBytesPerS"),
  ];
}

/** Of all disks together. */
function diskCells(
  disks: readonly DiskStats[],
  bytes: "readBytes" | "writeBytes",
  rate: "readBytesPerS" | "writeBytesPerS",
): [amount: string, rate: string] {
  if (disks.length === 0) return ["", ""];
  const passed = disks.flatMap(({ rates }) => rates?.[rate] ?? []);
  return [
    size(disks.reduce((sum, disk) => sum + Number(disk[bytes]), 0)),
    perSecond(passed.length === 0 ? undefined : passed.reduce((sum, each) => sum + each, 0)),
  ];
}

const interfaceLine = (name: string, each: InterfaceStats): string[] => [
  name,
  harmless(each.guestName),
  size(Number(each.rxBytes)),
  `${each.rxPackets}`,
  `${each.rxDropped}`,
  perSecond(each.rates?.rxBytesPerS),
  size(Number(each.txBytes)),
  `${each.txPackets}`,
  `${each.txDropped}`,
  perSecond(each.rates?.txBytesPerS),
];
