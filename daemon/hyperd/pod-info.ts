import { sizeOf } from "../../hypervisor/driver.ts";
import { ipOf } from "../../core/address.ts";
import type { ServiceParts } from "../api/context.ts";
import type { PodRow, PodState } from "../pods/store/pod-row.ts";
import { containerStatus, containerView } from "./containers/container-info.ts";
import { type KnownPods } from "./known-pods.ts";
import { idOf, vmOf } from "./pod-ids.ts";

const phases: Readonly<Record<PodState, string>> = {
  creating: "Pending",
  running: "Running",
  paused: "Paused",
  stopping: "Running",
  stopped: "Failed",
  failed: "Failed",
  deleting: "Running",
};

/** A pod as hyperd shows it. Its addresses are those of the plan, while it has a machine. */
export function podInfoView(row: PodRow, { records, networks }: ServiceParts, known: KnownPods) {
  const containers = known.containers([row]);
  const statuses = containers.map(containerStatus);
  const isUp = row.state === "running" || row.state === "paused";
  const succeeded =
    row.state === "stopped" &&
    statuses.length > 0 &&
    statuses.every((each) => each.phase === "succeeded");
  const network = networks
    .list()
    .find(({ name }) => row.plan.interfaces.some((each) => each.network === name));
  const gateway = network?.subnets[0]?.gateway;
  const startedMs = records.run(row.id)?.startedMs;
  return {
    podID: idOf(row),
    podName: idOf(row),
    kind: "Pod",
    apiVersion: "1.17",
    vm: vmOf(row),
    createdAt: Math.floor(row.createdMs / 1000),
    spec: {
      volumes: (row.spec.hyperd?.volumes ?? []).map((name) => ({
        name,
        source: row.spec.hyperd?.sources?.[name] ?? "",
        driver: "vfs",
      })),
      containers: containers.map(containerView),
      labels: row.spec.labels,
      vcpu: sizeOf(row.plan.vm).vcpu,
      memory: row.plan.vm.memoryMib,
    },
    status: {
      phase: succeeded ? "Succeeded" : phases[row.state],
      message: "",
      reason: "",
      hostIP: gateway === undefined ? "" : ipOf(gateway),
      podIP: isUp ? row.plan.interfaces.flatMap(({ addresses }) => addresses) : [],
      startTime: startedMs === undefined ? "" : new Date(startedMs).toISOString(),
      containerStatus: statuses,
      finishTime: "",
    },
  };
}
