import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { bareIp, type SandboxSpec } from "../../api/pod-spec.ts";
import type { MachineSample } from "../traffic/machine-rates.ts";
import type { CountedLink } from "../../linux/rtnetlink/counters.ts";
import { staying, withNic } from "../pods/store/pod-plan.ts";
import {
  type ContainerStats,
  type NamespaceMode,
  type PodSandboxFilter,
  PodSandboxSchema,
  PodSandboxState,
  type PodSandboxStatsFilter,
  PodSandboxStatsSchema,
  PodSandboxStatusSchema,
} from "./gen/cri_pb.ts";
import { isReady, type Sandbox } from "./sandboxes.ts";

/** Kubernetes counts nanoseconds. */
export const nanoseconds = (ms: number): bigint => BigInt(Math.round(ms)) * 1_000_000n;

const stateOf = (row: Sandbox): PodSandboxState =>
  isReady(row) ? PodSandboxState.SANDBOX_READY : PodSandboxState.SANDBOX_NOTREADY;

/** A sandbox in a list. */
export function listView(row: Sandbox) {
  const { metadata, labels, annotations, handler } = row.spec.sandbox;
  return create(PodSandboxSchema, {
    id: row.id,
    metadata,
    state: stateOf(row),
    createdAt: nanoseconds(row.createdMs),
    labels,
    annotations,
    runtimeHandler: handler,
  });
}

/** The numbers as they were sent. */
const optionsOf = ({ network, pid, ipc }: SandboxSpec["namespaces"]) => ({
  network: network as NamespaceMode,
  pid: pid as NamespaceMode,
  ipc: ipc as NamespaceMode,
});

/** A sandbox alone. One whose machine has ended shows no address. */
export function statusView(row: Sandbox) {
  const { metadata, labels, annotations, handler, namespaces } = row.spec.sandbox;
  const [ip = "", ...others] = isReady(row)
    ? row.plan.interfaces.flatMap(({ addresses }) => addresses).map(bareIp)
    : [];
  return create(PodSandboxStatusSchema, {
    id: row.id,
    metadata,
    state: stateOf(row),
    createdAt: nanoseconds(row.createdMs),
    network: { ip, additionalIps: others.map((each) => ({ ip: each })) },
    linux: { namespaces: { options: optionsOf(namespaces) } },
    labels,
    annotations,
    runtimeHandler: handler,
  });
}

/** What was found out about a sandbox: of its machine, of its taps, of its containers. */
interface SandboxUsage {
  readonly sample: MachineSample | undefined;
  readonly counted: ReadonlyMap<string, CountedLink>;
  readonly containers: readonly ContainerStats[];
}

/** Packets that the host sends into a tap are packets that the pod receives. */
function networkOf({ plan }: Sandbox, counted: SandboxUsage["counted"], timestamp: bigint) {
  const interfaces = withNic(staying(plan.interfaces)).flatMap(({ guestName, nic: { tap } }) => {
    const counters = counted.get(tap)?.counters;
    if (counters === undefined) return [];
    return [
      {
        name: guestName,
        rxBytes: { value: counters.txBytes },
        rxErrors: { value: counters.txErrors },
        txBytes: { value: counters.rxBytes },
        txErrors: { value: counters.rxErrors },
      },
    ];
  });
  const [first] = interfaces;
  return first === undefined ? {} : { network: { timestamp, defaultInterface: first, interfaces } };
}

/** What a sandbox uses; without a machine, nothing but its name. */
export function statsView(row: Sandbox, usage: SandboxUsage, nowMs: number) {
  const { sample, counted, containers } = usage;
  const { metadata, labels, annotations } = row.spec.sandbox;
  const timestamp = nanoseconds(nowMs);
  const stats: MessageInitShape<typeof PodSandboxStatsSchema> = {
    attributes: { id: row.id, metadata, labels, annotations },
    ...(sample === undefined
      ? {}
      : {
          linux: {
            cpu: {
              timestamp,
              usageCoreNanoSeconds: { value: nanoseconds(sample.usage.cpuMs) },
            },
            memory: {
              timestamp,
              workingSetBytes: { value: BigInt(sample.usage.memoryBytes) },
              usageBytes: { value: BigInt(sample.usage.memoryBytes) },
            },
            ...networkOf(row, counted, timestamp),
            containers: [...containers],
          },
        }),
  };
  return create(PodSandboxStatsSchema, stats);
}

/** Whether a sandbox is one of those asked for: all that the filter names must agree. */
export function matches(
  row: Sandbox,
  filter: PodSandboxFilter | PodSandboxStatsFilter | undefined,
): boolean {
  if (filter === undefined) return true;
  const { labels } = row.spec.sandbox;
  const state = "state" in filter ? filter.state : undefined;
  return (
    (filter.id === "" || filter.id === row.id) &&
    (state === undefined || state.state === stateOf(row)) &&
    Object.entries(filter.labelSelector).every(
      ([key, value]) => Object.hasOwn(labels, key) && labels[key] === value,
    )
  );
}
