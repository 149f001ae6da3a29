import { create } from "@bufbuild/protobuf";
import { type Timestamp, timestampFromMs } from "@bufbuild/protobuf/wkt";
import type { PodSpec } from "../../api/pod-spec.ts";
import { toErrorInfo } from "../../api/codes.ts";
import * as wire from "../../api/gen/podnet/v1/pod_pb.ts";
import { PodSpecSchema, type PodSpec as WireSpec } from "../../api/gen/podnet/v1/pod_spec_pb.ts";
import { errorFromRecord } from "../pod/error-record.ts";
import type { LivePod } from "../pod/live-pod.ts";
import type { PlanSection } from "../pod/plan-text.ts";
import type { InterfacePlan } from "../pod/pod-plan.ts";
import type { Span } from "../pod/span.ts";
import type { PodRow, PodState } from "../store/pods.ts";
import type { RunRow } from "../store/runs.ts";

const states: Readonly<Record<PodState, wire.PodState>> = {
  creating: wire.PodState.CREATING,
  running: wire.PodState.RUNNING,
  paused: wire.PodState.PAUSED,
  stopping: wire.PodState.STOPPING,
  stopped: wire.PodState.STOPPED,
  failed: wire.PodState.FAILED,
  deleting: wire.PodState.DELETING,
};

export const time = (ms: number): Timestamp => timestampFromMs(ms);

export interface PodViewParts {
  readonly run: RunRow | undefined;
  readonly live: LivePod | undefined;
  readonly accelerator: string;
}

/** A pod as the API shows it. */
export function podView(row: PodRow, { run, live, accelerator }: PodViewParts): wire.Pod {
  const { plan, spec, failure, guest } = row;
  return create(wire.PodSchema, {
    id: row.id,
    name: row.name,
    labels: { ...spec.labels },
    state: states[row.state],
    reason: row.reason ?? "",
    ...(failure === undefined ? {} : { failure: toErrorInfo(errorFromRecord(failure)) }),
    createdAt: time(row.createdMs),
    spec: specView(spec),
    interfaces: plan.interfaces.map((each) => interfaceView(each, row, live)),
    ...(run === undefined
      ? {}
      : {
          vm: {
            pid: run.pid,
            accelerator,
            vcpu: plan.vm.vcpu,
            memoryMib: plan.vm.memoryMib,
            startedAt: time(run.startedMs),
          },
        }),
    ...(guest === undefined || run === undefined
      ? {}
      : {
          guest: {
            agent: guest.agent ?? "",
            api: guest.api,
            extension: guest.extension ?? 0,
            hostname: row.observed?.hostname ?? "",
            agentRssKib: row.observed?.agentRssKib ?? 0,
          },
        }),
    spans: row.spans.map(spanView),
  });
}

function interfaceView(
  each: InterfacePlan,
  row: PodRow,
  live: LivePod | undefined,
): wire.PodInterface {
  const { nic } = each;
  const plugged = live?.plugged.has(each.position) ?? false;
  // What the guest said of a NIC that it has let go of since is no longer so.
  const observed =
    plugged && (row.state === "running" || row.state === "paused")
      ? row.observed?.interfaces.find(({ mac }) => mac === nic.mac)
      : undefined;
  return create(wire.PodInterfaceSchema, {
    network: each.network,
    guestName: each.guestName,
    mac: nic.mac,
    mtu: each.mtu,
    addresses: [...each.addresses],
    gateway: each.gateway ?? "",
    tap: nic.tap,
    bridge: each.bridge,
    slot: nic.slot,
    state:
      observed !== undefined
        ? wire.InterfaceState.CONFIGURED
        : plugged
          ? wire.InterfaceState.PLUGGED
          : wire.InterfaceState.PLANNED,
    observedAddresses: [...(observed?.addresses ?? [])],
    observedMtu: observed?.mtu ?? 0,
  });
}

function specView(spec: PodSpec): WireSpec {
  const { boot, dns } = spec;
  return create(PodSpecSchema, {
    name: spec.name ?? "",
    labels: { ...spec.labels },
    resources: { ...spec.resources },
    boot: {
      kernel: boot.kernel ?? "",
      initrd: boot.initrd ?? "",
      cmdline: boot.cmdline,
      disks: boot.disks.map((disk) => ({ ...disk })),
      factory: boot.factory ?? "",
    },
    interfaces: spec.interfaces.map((each) => ({
      network: each.network,
      address: each.address ?? "",
      mac: each.mac ?? "",
      mtu: each.mtu ?? 0,
      gateway: each.gateway ?? "",
      guestName: each.guestName ?? "",
    })),
    hostname: spec.hostname ?? "",
    ...(dns === undefined
      ? {}
      : { dns: { servers: [...dns.servers], search: [...dns.search], options: [...dns.options] } }),
    routes: spec.routes.map((route) => ({
      destination: route.destination,
      gateway: route.gateway ?? "",
      interface: route.interface ?? "",
    })),
  });
}

export const spanView = (span: Span): wire.Span => create(wire.SpanSchema, { ...span });

export function planView(podId: string, sections: readonly PlanSection[]): wire.Plan {
  return create(wire.PlanSchema, {
    podId,
    sections: sections.map(({ step, title, lines }) => ({ step, title, lines: [...lines] })),
  });
}
