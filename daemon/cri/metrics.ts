import type { MessageInitShape } from "@bufbuild/protobuf";
import {
  type ContainerStats,
  type MetricSchema,
  type MetricDescriptorSchema,
  MetricType,
  type PodSandboxStats,
  type PodSandboxMetricsSchema,
} from "./gen/cri_pb.ts";

/** What every figure says about whom it is of: the labels that kubelet's own metrics have. */
const baseLabels = ["container", "id", "image", "name", "namespace", "pod"] as const;

const cpu = "container_cpu_usage_seconds_total";
const memory = "container_memory_usage_bytes";
const workingSet = "container_memory_working_set_bytes";
const receivedBytes = "container_network_receive_bytes_total";
const receiveErrors = "container_network_receive_errors_total";
const sentBytes = "container_network_transmit_bytes_total";
const sendErrors = "container_network_transmit_errors_total";

const described: readonly (readonly [name: string, help: string, labels?: readonly string[]])[] = [
  [cpu, "Processor time that was used, whole seconds"],
  [memory, "Memory that is used, bytes"],
  [workingSet, "Memory that cannot be taken back at once, bytes"],
  [receivedBytes, "Bytes received", ["interface"]],
  [receiveErrors, "Errors while receiving", ["interface"]],
  [sentBytes, "Bytes sent", ["interface"]],
  [sendErrors, "Errors while sending", ["interface"]],
];

/** The figures that there are, as Prometheus names them. */
export const descriptors: readonly MessageInitShape<typeof MetricDescriptorSchema>[] =
  described.map(([name, help, labels = []]) => ({
    name,
    help,
    labelKeys: [...baseLabels, ...labels],
  }));

type Metric = MessageInitShape<typeof MetricSchema>;

/** The figures of a sandbox, of its interfaces, and of its containers. Pure. */
export function metricsOf(
  { attributes, linux }: PodSandboxStats,
  imageOf: (containerId: string) => string,
): MessageInitShape<typeof PodSandboxMetricsSchema> {
  const { id = "", metadata } = attributes ?? {};
  const ofPod = [metadata?.namespace ?? "", metadata?.name ?? ""];
  const labels = ["", id, "", id, ...ofPod];
  return {
    podSandboxId: id,
    metrics: [
      ...usage(linux ?? {}, labels),
      ...(linux?.network?.interfaces ?? []).flatMap((each) => {
        const at = [...labels, each.name];
        return [
          ...figure(receivedBytes, MetricType.COUNTER, at, each.rxBytes?.value),
          ...figure(receiveErrors, MetricType.COUNTER, at, each.rxErrors?.value),
          ...figure(sentBytes, MetricType.COUNTER, at, each.txBytes?.value),
          ...figure(sendErrors, MetricType.COUNTER, at, each.txErrors?.value),
        ];
      }),
    ],
    containerMetrics: (linux?.containers ?? []).map((container) => {
      const containerId = container.attributes?.id ?? "";
      const name = container.attributes?.metadata?.name ?? "";
      const at = [name, containerId, imageOf(containerId), containerId, ...ofPod];
      return { containerId, metrics: usage(container, at) };
    }),
  };
}

const usage = (of: Partial<Pick<ContainerStats, "cpu" | "memory">>, labels: string[]): Metric[] => {
  const used = of.cpu?.usageCoreNanoSeconds?.value;
  return [
    ...figure(cpu, MetricType.COUNTER, labels, used === undefined ? used : used / 1_000_000_000n),
    ...figure(memory, MetricType.GAUGE, labels, of.memory?.usageBytes?.value),
    ...figure(workingSet, MetricType.GAUGE, labels, of.memory?.workingSetBytes?.value),
  ];
};

/** A figure that was counted just now; none where there is none. */
const figure = (
  name: string,
  metricType: MetricType,
  labelValues: string[],
  value: bigint | undefined,
): Metric[] =>
  value === undefined ? [] : [{ name, metricType, labelValues, value: { value }, timestamp: 0n }];
