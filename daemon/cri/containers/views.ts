import { create } from "@bufbuild/protobuf";
import {
  type ContainerFilter,
  ContainerSchema,
  ContainerState,
  type ContainerStatsFilter,
  ContainerStatsSchema,
  ContainerStatusSchema,
} from "../gen/cri_pb.ts";
import type { ContainerUsage } from "../../../guest-init/protocol/container-messages.ts";
import { nanoseconds } from "../sandbox-views.ts";
import type { ContainerRow } from "./rows.ts";

/** One that is being removed has ended, or is as good as ended. */
const states: Readonly<Record<ContainerRow["state"], ContainerState>> = {
  creating: ContainerState.CONTAINER_CREATED,
  created: ContainerState.CONTAINER_CREATED,
  running: ContainerState.CONTAINER_RUNNING,
  ended: ContainerState.CONTAINER_EXITED,
  removing: ContainerState.CONTAINER_EXITED,
};

/** As a shell has it: 128 and the signal. */
function exitCodeOf({ end }: Pick<ContainerRow, "end">): number {
  if (end === undefined) return 0;
  return "code" in end ? end.code : 128 + end.signal;
}

/** As kubelet shows it; `OOMKilled` is a word that its users search for. */
function reasonOf({ end }: Pick<ContainerRow, "end">, exitCode: number): string {
  if (end?.outOfMemory === true) return "OOMKilled";
  return exitCode === 0 ? "Completed" : "Error";
}

export const containerView = (row: ContainerRow) =>
  create(ContainerSchema, {
    id: row.id,
    podSandboxId: row.podId,
    metadata: row.plan.metadata,
    image: { image: row.plan.image },
    imageRef: row.plan.digest,
    imageId: row.plan.digest,
    state: states[row.state],
    createdAt: nanoseconds(row.createdMs),
    labels: row.plan.labels,
    annotations: row.plan.annotations,
  });

export function containerStatus(row: ContainerRow) {
  const { plan } = row;
  const hasEnded = states[row.state] === ContainerState.CONTAINER_EXITED;
  const exitCode = exitCodeOf(row);
  return create(ContainerStatusSchema, {
    id: row.id,
    metadata: plan.metadata,
    state: states[row.state],
    createdAt: nanoseconds(row.createdMs),
    startedAt: row.startedMs === undefined ? 0n : nanoseconds(row.startedMs),
    finishedAt: row.endedMs === undefined ? 0n : nanoseconds(row.endedMs),
    exitCode,
    image: { image: plan.image },
    imageRef: plan.digest,
    imageId: plan.digest,
    reason: hasEnded ? reasonOf(row, exitCode) : "",
    message: row.message ?? "",
    labels: plan.labels,
    annotations: plan.annotations,
    mounts: [...plan.mounts],
    logPath: plan.log ?? "",
  });
}

/** `usage`: undefined where the guest does not say it. */
export const containerStats = (
  { id, plan }: ContainerRow,
  usage: ContainerUsage | undefined,
  nowMs: number,
) => {
  const timestamp = nanoseconds(nowMs);
  return create(ContainerStatsSchema, {
    ...(usage === undefined
      ? {}
      : {
          cpu: { timestamp, usageCoreNanoSeconds: { value: BigInt(usage.cpuUs) * 1000n } },
          memory: {
            timestamp,
            workingSetBytes: { value: BigInt(usage.workingSetBytes) },
            usageBytes: { value: BigInt(usage.memoryBytes) },
          },
        }),
    attributes: {
      id,
      metadata: plan.metadata,
      labels: plan.labels,
      annotations: plan.annotations,
    },
  });
};

/** Whether a container is one of those asked for: all that the filter names must agree. */
export function matchesContainer(
  row: ContainerRow,
  filter: ContainerFilter | ContainerStatsFilter | undefined,
): boolean {
  if (filter === undefined) return true;
  const state = "state" in filter ? filter.state : undefined;
  const { labels } = row.plan;
  return (
    (filter.id === "" || filter.id === row.id) &&
    (filter.podSandboxId === "" || filter.podSandboxId === row.podId) &&
    (state === undefined || state.state === states[row.state]) &&
    Object.entries(filter.labelSelector).every(
      ([key, value]) => Object.hasOwn(labels, key) && labels[key] === value,
    )
  );
}
