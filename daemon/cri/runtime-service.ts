import { sizeOf } from "../../hypervisor/driver.ts";
import type { HandlerContext, ServiceImpl } from "@connectrpc/connect";
import { version as podnetVersion } from "../../api/version.ts";
import { systemClock } from "../../core/clock.ts";
import { PodnetError } from "../../core/errors.ts";
import { printable } from "../../core/names.ts";
import { shown } from "../../core/shown.ts";
import { note, type ServiceParts } from "../api/context.ts";
import { sampleMachines } from "../api/machine-stats.ts";
import { staying } from "../pods/store/pod-plan.ts";
import { placedCounters, tapsOf } from "../traffic/counters.ts";
import { callerKey } from "../listeners/callers.ts";
import type { CreateOptions } from "../pods/lifecycle/starts.ts";
import { checkPodCidr } from "./pod-cidr.ts";
import { containerCalls, statsOf } from "./container-calls.ts";
import type { ContainerEvent } from "./container-events.ts";
import type { ContainerRow } from "./containers/rows.ts";
import type { SandboxContainers } from "./containers/sandbox-containers.ts";
import { containerStatus } from "./containers/views.ts";
import { CgroupDriver, ContainerEventType, type RuntimeService } from "./gen/cri_pb.ts";
import { descriptors, metricsOf } from "./metrics.ts";
import { sizeFor } from "./sandbox-size.ts";
import { handlers, resourcesOf, sandboxSpec } from "./sandbox-spec.ts";
import { listView, matches, nanoseconds, statsView, statusView } from "./sandbox-views.ts";
import { isReady, type Sandbox, Sandboxes } from "./sandboxes.ts";
import { streamCalls } from "./stream-calls.ts";
import type { StreamingServer } from "./streaming/streaming-server.ts";

/** Sandboxes of Kubernetes, each a pod of this node. */
export function runtimeService(
  parts: ServiceParts,
  containers: SandboxContainers,
  streams: Pick<StreamingServer, "urlFor">,
): Partial<ServiceImpl<typeof RuntimeService>> {
  const { pods, config } = parts;
  const sandboxes = new Sandboxes(pods);
  const stats = async (rows: readonly Sandbox[]) => {
    const live = rows.map(({ id }) => pods.live(id)).filter((each) => each !== undefined);
    const taps = live.flatMap(({ plan }) => tapsOf(staying(plan.interfaces)));
    const running = rows.flatMap(({ id }) => containers.of(id)).filter(isRunning);
    const [samples, counted, used] = await Promise.all([
      sampleMachines(live, systemClock),
      placedCounters(parts.netlink, taps),
      statsOf(running, containers),
    ]);
    return rows.map((row) =>
      statsView(
        row,
        {
          sample: samples.get(row.id),
          counted,
          containers: used.filter((_each, i) => running[i]?.podId === row.id),
        },
        systemClock.now(),
      ),
    );
  };
  return {
    version: () => ({
      // Of kubelet's own interface to runtimes, and always this.
      version: "0.1.0",
      runtimeName: "podnet",
      runtimeVersion: podnetVersion,
      runtimeApiVersion: "v1",
    }),

    status: ({ verbose }) => status(parts, verbose),

    // Machines are in control groups that podnetd makes itself, whatever systemd does.
    runtimeConfig: () => ({ linux: { cgroupDriver: CgroupDriver.CGROUPFS } }),

    updateRuntimeConfig({ runtimeConfig }) {
      checkPodCidr(runtimeConfig?.networkConfig?.podCidr ?? "", config.network.subnets);
      return {};
    },

    async runPodSandbox(request, context) {
      const asked = sandboxSpec(request, { network: config.network.name });
      note(parts, context, `run sandbox ${asked.spec.name ?? ""}`);
      const { id } = await sandboxes.run(asked, work(context));
      for (const kind of ["created", "started"] as const) containers.events.publish(kind, id, id);
      return { podSandboxId: id };
    },

    async stopPodSandbox({ podSandboxId }, context) {
      note(parts, context, `stop sandbox ${printable(podSandboxId)}`);
      const wasReady = sandboxes.list().some((row) => row.id === podSandboxId && isReady(row));
      await sandboxes.stop(podSandboxId);
      if (wasReady) containers.events.publish("stopped", podSandboxId, podSandboxId);
      return {};
    },

    async removePodSandbox({ podSandboxId }, context) {
      note(parts, context, `remove sandbox ${printable(podSandboxId)}`);
      const left = containers.of(podSandboxId);
      const isThere = sandboxes.list().some((row) => row.id === podSandboxId);
      await sandboxes.remove(podSandboxId);
      containers.forget(left);
      if (isThere) containers.events.publish("deleted", podSandboxId, podSandboxId);
      return {};
    },

    // `overhead` is kubelet's own reckoning, as in RunPodSandbox.
    async updatePodSandboxResources({ podSandboxId, resources }, context) {
      const row = sandboxes.find(podSandboxId);
      note(parts, context, `resize sandbox ${printable(podSandboxId)}`);
      if (!isReady(row))
        throw new PodnetError("WRONG_STATE", `Sandbox ${row.id} is not ready`, {
          field: "pod_sandbox_id",
          hint: "Run another sandbox",
        });
      const next = sizeFor(row.plan.vm, resourcesOf(resources));
      if (next !== undefined) await pods.changes.resize(row.id, next);
      return {};
    },

    podSandboxStatus({ podSandboxId, verbose }) {
      const row = sandboxes.find(podSandboxId);
      return { status: statusView(row), info: verbose ? { info: sandboxInfo(row) } : {} };
    },

    listPodSandbox: ({ filter }) => ({
      items: sandboxes
        .list()
        .filter((row) => matches(row, filter))
        .map(listView),
    }),

    async *getContainerEvents(_request, { signal }) {
      const events = containers.events.follow(signal);
      for await (const event of events) yield eventView(event, sandboxes, containers);
    },

    async podSandboxStats({ podSandboxId }) {
      const [found] = await stats([sandboxes.find(podSandboxId)]);
      return found === undefined ? {} : { stats: found };
    },

    listPodSandboxStats: async ({ filter }) => ({
      stats: await stats(sandboxes.list().filter((row) => matches(row, filter))),
    }),

    listMetricDescriptors: () => ({ descriptors: [...descriptors] }),

    listPodSandboxMetrics: async () => {
      const imageOf = (id: string): string => containers.search(id)?.plan.image ?? "";
      const all = await stats(sandboxes.list());
      return { podMetrics: all.map((each) => metricsOf(each, imageOf)) };
    },

    ...containerCalls(parts, sandboxes, containers),
    ...streamCalls(parts, sandboxes, containers, streams),
  };
}

const isRunning = ({ state }: ContainerRow): boolean => state === "running";

/** What happened, with how the sandbox and all its containers are by now. */
function eventView(
  { kind, id, podId, atMs }: ContainerEvent,
  sandboxes: Sandboxes,
  containers: SandboxContainers,
) {
  const sandbox = sandboxes.list().find((row) => row.id === podId);
  return {
    containerId: id,
    containerEventType: eventTypes[kind],
    createdAt: nanoseconds(atMs),
    ...(sandbox === undefined ? {} : { podSandboxStatus: statusView(sandbox) }),
    containersStatuses: containers.of(podId).map(containerStatus),
  };
}

const eventTypes = {
  created: ContainerEventType.CONTAINER_CREATED_EVENT,
  started: ContainerEventType.CONTAINER_STARTED_EVENT,
  stopped: ContainerEventType.CONTAINER_STOPPED_EVENT,
  deleted: ContainerEventType.CONTAINER_DELETED_EVENT,
} as const;

/** The caller's end, its deadline say, undoes a run. */
function work({ signal, values }: HandlerContext): CreateOptions {
  const caller = values.get(callerKey);
  const admit = caller === undefined ? {} : { admit: () => caller.create() };
  return { signal, progress: { started: () => {}, finished: () => {} }, ...admit };
}

function status(parts: ServiceParts, verbose: boolean) {
  const { qemu, networks, config } = parts;
  const missing = qemu.missing();
  const hasNetwork = networks.list().some(({ name }) => name === config.network.name);
  const conditions = [
    condition("RuntimeReady", missing),
    condition(
      "NetworkReady",
      hasNetwork
        ? undefined
        : new PodnetError("NETWORK_NOT_FOUND", `There is no network "${config.network.name}"`),
    ),
  ];
  const info = { factory: config.factory, network: config.network.name };
  return {
    status: { conditions },
    runtimeHandlers: handlers.map((name) => ({ name })),
    info: verbose ? { config: JSON.stringify(info) } : {},
  };
}

const condition = (type: string, problem: PodnetError | undefined) => ({
  type,
  status: problem === undefined,
  reason: problem?.code ?? "",
  message: problem?.message ?? "",
});

/** Details of a sandbox for `crictl inspectp`. */
const sandboxInfo = ({ name, state, reason, spec, plan }: Sandbox): string =>
  JSON.stringify({
    pod: name,
    state,
    // What a guest said may be in it, and crictl shows it on a terminal.
    reason: shown(reason ?? ""),
    hostname: spec.hostname ?? name,
    dns: spec.dns ?? {},
    vcpu: sizeOf(plan.vm).vcpu,
    memoryMib: plan.vm.memoryMib,
    logDirectory: spec.sandbox.logDirectory,
  });
