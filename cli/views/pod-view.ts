import { type Timestamp, timestampMs } from "@bufbuild/protobuf/wkt";
import {
  DiskState,
  InterfaceState,
  type Pod,
  type PodDisk,
  type PodInterface,
  PodState,
} from "../../api/gen/podnet/v1/pod_pb.ts";
import type { Route } from "../../api/gen/podnet/v1/pod_spec_pb.ts";
import { quotesOf } from "./error-details.ts";
import type { Output } from "../io.ts";
import { limitsText } from "../flags/limit-flags.ts";
import { portText } from "../../api/port-text.ts";
import { portFacts } from "./port-view.ts";
import { age, columns, duration, harmless, type Style, styled, table } from "./text.ts";

/** `RUNNING` becomes `running`, also for a state that a newer daemon knows alone. */
export const lower = (names: Readonly<Record<string, number>>, value: number): string =>
  (Object.entries(names).find(([, n]) => n === value)?.[0] ?? `state ${value}`)
    .toLowerCase()
    .replaceAll("_", " ");

export const stateName = (state: PodState): string => lower(PodState, state);

const stateStyles: Readonly<Partial<Record<PodState, Style>>> = {
  [PodState.RUNNING]: "green",
  [PodState.FAILED]: "red",
  [PodState.CREATING]: "yellow",
  [PodState.DELETING]: "yellow",
  [PodState.STOPPING]: "yellow",
};

const stateText = (out: Output, state: PodState): string =>
  styled(out, stateStyles[state] ?? "dim", stateName(state));

const bare = (address: string): string => address.replace(/\/\d+$/, "");

export const addressesOf = (pod: Pod): string[] => pod.interfaces.flatMap((one) => one.addresses);

export const networksOf = (pod: Pod): string[] => [
  ...new Set(pod.interfaces.map(({ network, bridge }) => network || bridge).filter(Boolean)),
];

const created = (pod: Pod, now: number): string =>
  pod.createdAt === undefined ? "" : age(now - timestampMs(pod.createdAt));

/** What of pods is shown in columns. */
interface Shown {
  readonly heading: readonly string[];
  readonly rows: readonly (readonly string[])[];
}

/** All pods as a table; with `hosts` each with the host it is on, `wide` with what it has. */
export function podRows(
  pods: readonly Pod[],
  now: number,
  { hosts = false, wide = false }: { readonly hosts?: boolean; readonly wide?: boolean },
): Shown {
  const columns: readonly Column[] = [
    ["NAME", (pod) => pod.name],
    ["ID", (pod) => pod.id],
    ["STATE", (pod) => stateName(pod.state)],
    ["AGE", (pod) => created(pod, now)],
    ...(hosts ? [["HOST", hostOf] as const] : []),
    ["NETWORK", (pod) => networksOf(pod).join(",")],
    ["ADDRESS", (pod) => addressesOf(pod).map(bare).join(",")],
    ...(wide ? wideColumns : []),
    ["REASON", (pod) => harmless(pod.reason)],
  ];
  return {
    heading: columns.map(([name]) => name),
    rows: pods.map((pod) => columns.map(([, of]) => of(pod, now))),
  };
}

const hostOf = (pod: Pod): string => (pod.host === "" ? "(this host)" : harmless(pod.host));

const since = (time: Timestamp, now: number): string => age(now - timestampMs(time));
const inTime = (time: Timestamp, now: number): string => `in ${age(timestampMs(time) - now)}`;

/** What podnetd will do with the pod by itself. */
function lifetimeText({ spec, expiresAt, idleSince }: Pod, now: number): string {
  const { ttlDelete = false, idleStopS = 0 } = spec?.lifetime ?? {};
  const end = ttlDelete ? "is deleted" : "is stopped";
  const idle = idleSince === undefined ? "" : `, idle for ${since(idleSince, now)}`;
  return [
    ...(expiresAt === undefined ? [] : [`${end} ${inTime(expiresAt, now)}`]),
    ...(idleStopS === 0 ? [] : [`is stopped when idle for ${age(idleStopS * 1000)}${idle}`]),
  ].join("; ");
}

type Column = readonly [string, (pod: Pod, now: number) => string];

const wideColumns: readonly Column[] = [
  ["VCPU", ({ vm, spec }) => `${vm?.vcpu ?? spec?.resources?.vcpu ?? ""}`],
  ["MEMORY", ({ vm, spec }) => `${vm?.memoryMib ?? spec?.resources?.memoryMib ?? ""}`],
  ["PORTS", (pod) => pod.ports.map(portText).join(",")],
  [
    "LABELS",
    ({ labels }) =>
      Object.entries(labels)
        .map(([key, value]) => `${key}=${harmless(value)}`)
        .join(","),
  ],
  ["EXPIRES", ({ expiresAt }, now) => (expiresAt === undefined ? "" : inTime(expiresAt, now))],
  ["IDLE", ({ idleSince }, now) => (idleSince === undefined ? "" : since(idleSince, now))],
];

/** One line about a pod that has just come up. */
export function podLine(out: Output, pod: Pod): string {
  const addresses = addressesOf(pod).map(bare).join(", ");
  return `${styled(out, "bold", pod.name)}  ${pod.id}  ${stateText(out, pod.state)}  ${addresses}`;
}

function facts(out: Output, pairs: readonly (readonly [string, string])[]): string[] {
  const known = pairs.filter(([, value]) => value !== "");
  const width = Math.max(...known.map(([name]) => name.length));
  return known.map(([name, value]) => `${styled(out, "dim", name.padEnd(width))}  ${value}`);
}

/** Where the host's end of an interface is. */
function hostEnd({ tap, bridge, network, netns }: PodInterface): string {
  if (tap === "") return "";
  if (netns !== "") return `${tap} in ${netns}`;
  if (bridge === "") return `${tap} (not podnet's)`;
  return `${tap} on ${bridge} (${network === "" ? "not podnet's" : network})`;
}

/** As ip(8) writes it. */
function routeText({ destination, gateway, metric }: Route): string {
  const to = destination === "0.0.0.0/0" || destination === "::/0" ? "default" : destination;
  const words = [
    to,
    gateway === "" ? "" : `via ${gateway}`,
    metric === 0 ? "" : `metric ${metric}`,
  ];
  return harmless(words.filter(Boolean).join(" "));
}

const interfaceFacts = (pod: Pod): string[] =>
  columns(
    pod.interfaces.map((one) => [
      `  ${one.guestName}`,
      one.addresses.join(" ") || "no address",
      one.mac,
      one.mac === "" ? "" : `mtu ${one.mtu}`,
      hostEnd(one),
      one.routes.map(routeText).join(", "),
      harmless(limitsText(one.limits)),
      lower(InterfaceState, one.state),
    ]),
  );

/** A pod's interfaces as a table. */
export const interfaceTable = (pod: Pod): string =>
  table(
    ["NAME", "STATE", "NETWORK", "BRIDGE", "TAP", "ADDRESS", "MTU", "MAC", "ROUTES"],
    pod.interfaces.map((one) => [
      one.guestName,
      lower(InterfaceState, one.state),
      one.network,
      one.bridge,
      one.tap,
      one.addresses.join(","),
      one.mac === "" ? "" : `${one.mtu}`,
      one.mac,
      one.routes.map(routeText).join(", "),
    ]),
  );

/** The steps of bringing a pod up, drawn to scale. */
function waterfall(pod: Pod, width: number): string[] {
  const end = Math.max(...pod.spans.map((span) => span.startMs + span.durationMs));
  const scale = width / Math.max(end, 1);
  return columns(
    pod.spans.map((span) => {
      const from = Math.min(Math.floor(span.startMs * scale), width - 1);
      const length = Math.max(1, Math.round(span.durationMs * scale));
      const bar = `${" ".repeat(from)}${"█".repeat(Math.min(length, width - from))}`;
      return [
        `  ${span.step}`,
        duration(span.durationMs),
        bar.padEnd(width),
        harmless(span.detail),
      ];
    }),
  );
}

/** A plugged disk. */
const diskText = ({ name, state, path }: PodDisk): string =>
  `${harmless(name)} (${lower(DiskState, state)}, ${harmless(path)})`;

/** What its machine may have at most, where that is more than it has. */
const roomText = ({ vcpu, memoryMib, maxVcpu, maxMemoryMib }: NonNullable<Pod["vm"]>): string =>
  maxVcpu > vcpu || maxMemoryMib > memoryMib
    ? `, at most ${maxVcpu} vcpu, ${maxMemoryMib} MiB`
    : "";

/** Everything about one pod. */
export function podDetails(out: Output, pod: Pod, now: number): string {
  const labels = Object.entries(pod.labels).map(([key, value]) => `${key}=${harmless(value)}`);
  const { vm, guest, failure } = pod;
  const lines = [
    ...facts(out, [
      ["Name", styled(out, "bold", pod.name)],
      ["Id", pod.id],
      ["State", stateText(out, pod.state)],
      ["Reason", harmless(pod.reason)],
      ["Failure", failure === undefined ? "" : `${failure.code}: ${harmless(failure.message)}`],
      ["Hint", harmless(failure?.hint ?? "")],
      ...quotesOf(failure?.details ?? {}, failure?.message ?? "").flatMap(({ name, lines: said }) =>
        said.map((line, i): [string, string] => [i === 0 ? `Details, ${name}` : "", line]),
      ),
      ["Age", created(pod, now)],
      ["Labels", labels.join(" ")],
      ["Lifetime", lifetimeText(pod, now)],
      ["Policy", pod.spec?.policy === undefined ? "" : `pod:${pod.name}, rules of its own`],
      [
        "VM",
        vm === undefined
          ? ""
          : `pid ${vm.pid}, ${vm.accelerator}, ${vm.vcpu} vcpu, ${vm.memoryMib} MiB${roomText(vm)}`,
      ],
      ["Disks", pod.disks.map(diskText).join(", ")],
      ["Restarts", vm === undefined || vm.guestRestarts === 0 ? "" : `${vm.guestRestarts}`],
      ["Machine", vm?.attached === true ? `foreign, by ${harmless(vm.qmpSocket)}` : ""],
      [
        "Guest",
        guest === undefined
          ? ""
          : guest.kind === "none"
            ? "none: podnet does not talk to the guest"
            : guest.extension === 0
              ? `hyperstart, API ${guest.api}`
              : `agent ${harmless(guest.agent)}, extension ${guest.extension}, ${guest.agentRssKib} KiB`,
      ],
      ...(guest?.cannot ?? []).map((what, i): [string, string] => [
        i === 0 ? "Cannot" : "",
        harmless(what),
      ]),
    ]),
    ...(pod.interfaces.length === 0
      ? []
      : [styled(out, "dim", "Interfaces"), ...interfaceFacts(pod)]),
    ...(pod.ports.length === 0 ? [] : [styled(out, "dim", "Ports"), ...portFacts(pod)]),
    ...(pod.spans.length === 0 ? [] : [styled(out, "dim", "Provisioning"), ...waterfall(pod, 32)]),
  ];
  return `${lines.join("\n")}\n`;
}
