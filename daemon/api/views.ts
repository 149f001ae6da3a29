import { create, type JsonObject, type MessageInitShape } from "@bufbuild/protobuf";
import { type Timestamp, timestampFromMs } from "@bufbuild/protobuf/wkt";
import type {
  CloudInitSpec,
  CniSpec,
  FileSpec,
  LifetimeSpec,
  InterfaceSpec,
  PodSpec,
  PortChoices,
  PortSpec,
  RouteSpec,
} from "../../api/pod-spec.ts";
import { hiddenContent } from "../../api/validate/files.ts";
import { toErrorInfo } from "../../api/codes.ts";
import * as wire from "../../api/gen/podnet/v1/pod_pb.ts";
import { limitsView } from "../../core/rate-limits.ts";
import {
  type BridgePortSchema,
  type CloudInitSchema,
  type CniInterfaceSchema,
  type GuestFileSchema,
  type InterfaceSchema,
  type LifetimeSchema,
  PodSpecSchema,
  type PodSpec as WireSpec,
  type PublishedPort as WirePort,
  PublishedPortSchema,
  type RouteSchema,
} from "../../api/gen/podnet/v1/pod_spec_pb.ts";
import { encodeUtf8 } from "../../core/utf8.ts";
import type { GuestIdentity } from "../../guest-init/channel/guest.ts";
import { architectureOf } from "../../hypervisor/architecture.ts";
import { type Capabilities, sizeOf } from "../../hypervisor/driver.ts";
import type { NetworkDefinition } from "../config/network-definition.ts";
import { limitsOf } from "../config/port-rates.ts";
import { errorFromRecord } from "../events/error-record.ts";
import { guestOf, guestThatIs } from "../pods/guest/guest-of.ts";
import type { LivePod } from "../pods/lifecycle/live-pod.ts";
import { machineKindOf } from "../pods/machine/machine-of.ts";
import { bridgeAsked } from "../pods/interfaces/kinds/bridge.ts";
import { cniAsked } from "../pods/interfaces/kinds/cni.ts";
import { isOfLoopback } from "../pods/interfaces/kinds/loopback.ts";
import { networkAsked } from "../pods/interfaces/kinds/network.ts";
import { plannedKind } from "../pods/interfaces/kinds/kind-of.ts";
import { isByKeptTap } from "../pods/interfaces/kinds/tap.ts";
import type { PlanSection } from "../pods/plan/plan-text.ts";
import { ratesOf } from "../pods/interfaces/pod-ports.ts";
import { routesOf } from "../pods/interfaces/plan-routes.ts";
import type { InterfacePlan } from "../pods/store/pod-plan.ts";
import { diskSpecViews, diskView } from "./disks/disk-view.ts";
import type { Span } from "../events/span.ts";
import type { DamagedPod } from "../pods/store/pod-rows.ts";
import { processSpecView, processView } from "./process/process-view.ts";
import type { PodRow, PodState } from "../pods/store/pod-row.ts";
import type { ProcessRow } from "../pods/store/process-rows.ts";
import type { RunRow } from "../pods/store/runs.ts";

export const podStates: Readonly<Record<PodState, wire.PodState>> = {
  creating: wire.PodState.CREATING,
  running: wire.PodState.RUNNING,
  paused: wire.PodState.PAUSED,
  stopping: wire.PodState.STOPPING,
  stopped: wire.PodState.STOPPED,
  failed: wire.PodState.FAILED,
  deleting: wire.PodState.DELETING,
};

/** Of whole milliseconds: a part of a nanosecond could not be sent. */
export const time = (ms: number): Timestamp => timestampFromMs(Math.round(ms));

export interface PodViewParts {
  readonly run: RunRow | undefined;
  readonly live: LivePod | undefined;
  readonly process: ProcessRow | undefined;
  /** When its time is over. */
  readonly expiresMs: number | undefined;
  readonly nowMs: number;
  readonly accelerators: Capabilities["accelerators"];
  readonly networks: readonly NetworkDefinition[];
}

/** A pod as the API shows it. */
export function podView(
  row: PodRow,
  { run, live, accelerators, networks, process, expiresMs, nowMs }: PodViewParts,
): wire.Pod {
  const { plan, spec, failure, guest } = row;
  const kind = guestOf(plan);
  const machine = machineKindOf(plan.vm);
  const idleMs = live?.activity.idleMs;
  return create(wire.PodSchema, {
    id: row.id,
    name: row.name,
    labels: { ...spec.labels },
    state: podStates[row.state],
    reason: row.reason ?? live?.restarts.text ?? "",
    ...(failure === undefined ? {} : { failure: toErrorInfo(errorFromRecord(failure)) }),
    createdAt: time(row.createdMs),
    spec: { ...specView(spec), disks: diskSpecViews(plan) },
    interfaces: plan.interfaces.map((each) => interfaceView(each, row, live, networks)),
    ports: (plan.published ?? []).map(portView),
    ...(run === undefined
      ? {}
      : {
          vm: {
            pid: run.pid,
            accelerator: plan.vm.attached?.accelerator ?? accelerators[architectureOf(plan.vm)],
            arch: architectureOf(plan.vm),
            attached: !machine.isOwn,
            qmpSocket: plan.vm.attached?.qmp ?? "",
            ...sizeOf(plan.vm),
            maxVcpu: (plan.vm.room ?? sizeOf(plan.vm)).vcpu,
            maxMemoryMib: (plan.vm.room ?? sizeOf(plan.vm)).memoryMib,
            startedAt: time(run.startedMs),
            guestRestarts: live?.restarts.count ?? 0,
          },
        }),
    ...(guest === undefined || run === undefined
      ? run === undefined || kind.hasAgent
        ? {}
        : {
            guest: {
              kind: kind.name,
              cannot: [...kind.text.cannot(), ...machine.text.cannot(kind)],
            },
          }
      : {
          guest: {
            agent: guest.agent ?? "",
            api: guest.api,
            extension: guest.extension ?? 0,
            hostname: row.observed?.hostname ?? "",
            agentRssKib: row.observed?.agentRssKib ?? 0,
            ...guestView(guest, row),
          },
        }),
    spans: row.spans.map(spanView),
    disks: (plan.disks ?? []).map((disk) => diskView(disk, live)),
    ...(plan.process === undefined ? {} : { process: processView(plan.process, process) }),
    ...(expiresMs === undefined ? {} : { expiresAt: time(expiresMs) }),
    ...(idleMs === undefined ? {} : { idleSince: time(nowMs - idleMs) }),
  });
}

/** A pod whose record makes no sense: what is known is who it is, and what to do about it. */
export const damagedView = ({ id, name, createdMs, damage }: DamagedPod): wire.Pod =>
  create(wire.PodSchema, {
    id,
    name,
    state: wire.PodState.FAILED,
    reason: `${damage.message}. ${damage.hint ?? ""}`,
    failure: toErrorInfo(damage),
    createdAt: time(createdMs),
    spec: {},
  });

function guestView(
  guest: GuestIdentity,
  { observed, plan }: PodRow,
): MessageInitShape<typeof wire.GuestSchema> {
  const { name, text } = guestThatIs(guest);
  return {
    kind: name,
    cannot: [...text.cannot(guest, observed), ...machineKindOf(plan.vm).text.cannot(guestOf(plan))],
  };
}

function interfaceView(
  each: InterfacePlan,
  row: PodRow,
  live: LivePod | undefined,
  networks: readonly NetworkDefinition[],
): wire.PodInterface {
  const { nic, bridge } = each;
  const rates = bridge === undefined ? undefined : ratesOf(each, networks);
  const plugged = live?.plugged.has(each.position) ?? false;
  const observed =
    row.state === "running" || row.state === "paused" ? observedOf(each, row, plugged) : undefined;
  return create(wire.PodInterfaceSchema, {
    network: each.network ?? "",
    guestName: each.guestName,
    mac: nic?.mac ?? "",
    mtu: each.mtu,
    addresses: [...each.addresses],
    gateway: each.gateways.map(({ gateway }) => gateway).join(" "),
    tap: nic?.tap ?? "",
    bridge: each.bridge ?? "",
    netns: plannedKind(each).replaced?.netns ?? "",
    slot: nic?.slot ?? 0,
    ...(rates === undefined ? {} : { limits: limitsView(limitsOf(rates)) }),
    state: interfaceState(each, isConfigured(each, row, observed), plugged),
    observedAddresses: [...(observed?.addresses ?? [])],
    observedMtu: observed?.mtu ?? 0,
    routes: routesOf(row.plan)
      .filter((route) => route.interface === each.guestName)
      .map(routeView),
  });
}

const isConfigured = (
  { addresses }: InterfacePlan,
  { plan }: PodRow,
  observed: { readonly addresses: readonly string[] } | undefined,
): boolean => observed !== undefined && guestOf(plan).isConfigured(addresses, observed.addresses);

/** The guest's report of a NIC; it is outdated for a NIC that the guest has released since. */
function observedOf(
  { nic, addresses, mtu }: InterfacePlan,
  { observed }: PodRow,
  plugged: boolean,
): { readonly addresses: readonly string[]; readonly mtu: number } | undefined {
  if (nic !== undefined)
    return plugged ? observed?.interfaces.find(({ mac }) => mac === nic.mac) : undefined;
  const there = observed?.loopback;
  return addresses.every((address) => there?.includes(address))
    ? { addresses: there ?? [], mtu }
    : undefined;
}

function interfaceState(
  { leaving }: InterfacePlan,
  isObserved: boolean,
  isPlugged: boolean,
): wire.InterfaceState {
  if (leaving === true) return wire.InterfaceState.UNPLUG_PENDING;
  if (isObserved) return wire.InterfaceState.CONFIGURED;
  return isPlugged ? wire.InterfaceState.PLUGGED : wire.InterfaceState.PLANNED;
}

const cniSpecView = ({
  link,
  netns = "",
  list = "",
  args,
  capabilities,
}: CniSpec): MessageInitShape<typeof CniInterfaceSchema> => ({
  link,
  netns,
  list,
  args: { ...args },
  capabilities: Object.keys(capabilities).length === 0 ? "" : JSON.stringify(capabilities),
});

const oneOf = (addresses: readonly string[]): string =>
  addresses.length === 1 ? (addresses[0] ?? "") : "";

function interfaceSpecView(each: InterfaceSpec): MessageInitShape<typeof InterfaceSchema> {
  const { addresses = [], port } = each;
  const cni = cniAsked(each);
  return {
    network: networkAsked(each) ?? "",
    bridge: bridgeAsked(each) ?? "",
    tapKept: isByKeptTap(each),
    loopback: isOfLoopback(each),
    ...(cni === undefined ? {} : { cni: cniSpecView(cni) }),
    address: each.addresses?.length === 0 ? "none" : oneOf(addresses),
    addresses: addresses.length > 1 ? [...addresses] : [],
    mac: each.mac ?? "",
    ...(each.mtu === undefined ? {} : { mtu: each.mtu }),
    gateway: each.gateway ?? "",
    metric: each.metric ?? 0,
    guestName: each.guestName ?? "",
    tap: each.tap ?? "",
    ...(port === undefined ? {} : { port: portSpecView(port) }),
  };
}

const portSpecView = ({
  limits,
  ...port
}: PortChoices): MessageInitShape<typeof BridgePortSchema> => ({
  ...port,
  ...(limits === undefined ? {} : { limits: limitsView(limits) }),
});

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
      agent: boot.agent ?? "",
      ...(boot.cloudInit === undefined ? {} : { cloudInit: cloudInitView(boot.cloudInit) }),
      image: boot.image ?? "",
      layer: boot.layer === undefined ? "" : "persistent",
      ...(boot.layer?.mib === undefined ? {} : { layerMib: boot.layer.mib }),
    },
    interfaces: spec.interfaces.map(interfaceSpecView),
    hostname: spec.hostname ?? "",
    ...(dns === undefined
      ? {}
      : { dns: { servers: [...dns.servers], search: [...dns.search], options: [...dns.options] } }),
    ports: (spec.ports ?? []).map(portView),
    routes: spec.routes.map(routeView),
    ...(spec.policy === undefined ? {} : { policy: spec.policy as JsonObject }),
    files: (spec.files ?? []).map(fileView),
    shares: [...(spec.shares ?? [])],
    ...(spec.process === undefined ? {} : { process: processSpecView(spec.process) }),
    ...(spec.restart === undefined ? {} : { restart: { ...spec.restart } }),
    ...(spec.lifetime === undefined ? {} : { lifetime: lifetimeView(spec.lifetime) }),
  });
}

const lifetimeView = ({
  ttlMs = 0,
  ttlDelete,
  idleStopMs = 0,
}: LifetimeSpec): MessageInitShape<typeof LifetimeSchema> => ({
  ttlS: ttlMs / 1000,
  ttlDelete,
  idleStopS: idleStopMs / 1000,
});

/** A file may hold secrets: viewers of pods see only its size, which a create refuses. */
const fileView = ({ content, ...file }: FileSpec): MessageInitShape<typeof GuestFileSchema> => ({
  ...file,
  content: encodeUtf8(hiddenContent(Buffer.from(content, "base64").length)),
});

/**
 * User data may hold secrets: viewers of pods see only its size. A create does not take that for
 * user data.
 */
const cloudInitView = ({ userData }: CloudInitSpec): MessageInitShape<typeof CloudInitSchema> => ({
  userData: userData === "" ? "" : `(${encodeUtf8(userData).length} bytes, not shown)`,
});

const routeView = (route: RouteSpec): MessageInitShape<typeof RouteSchema> => ({
  destination: route.destination,
  gateway: route.gateway ?? "",
  interface: route.interface ?? "",
  metric: route.metric ?? 0,
});

/** A published port: as asked for, or as decided. */
export const portView = (port: PortSpec): WirePort =>
  create(PublishedPortSchema, {
    hostIp: port.hostIp ?? "",
    hostPort: port.hostPort,
    podPort: port.podPort,
    count: port.count,
    protocol: port.protocol,
  });

export const spanView = (span: Span): wire.Span => create(wire.SpanSchema, { ...span });

export function planView(podId: string, sections: readonly PlanSection[]): wire.Plan {
  return create(wire.PlanSchema, {
    podId,
    sections: sections.map(({ step, title, lines }) => ({ step, title, lines: [...lines] })),
  });
}
