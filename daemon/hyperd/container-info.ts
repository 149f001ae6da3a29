import type { PodSpec } from "../../api/pod-spec.ts";
import { PodnetError } from "../../core/errors.ts";
import type { ServiceParts } from "../api/context.ts";
import type { FollowedProcess } from "../pods/process/followed-process.ts";
import { exitCodeOf } from "../pods/process/process-end.ts";
import type { PodRow } from "../pods/store/pod-row.ts";
import type { ProcessRow } from "../pods/store/process-rows.ts";
import type { Container } from "./known-pods.ts";

const time = (ms: number): string => new Date(ms).toISOString().replace(/\.\d+Z$/, "Z");

/** A container as hyperd shows it. Values of variables may be secrets, and are not shown. */
export function containerView({ id, name, row: { spec, plan } }: Container) {
  const { process } = plan;
  const { args = [] } = spec.process ?? {};
  return {
    name: `/${name}`,
    containerID: id,
    image: spec.hyperd?.container?.image ?? spec.boot.image ?? "",
    imageID: process?.digest ?? "",
    imagePullPolicy: "",
    workingDir: process?.workdir ?? "/",
    user: process?.user ?? "",
    tty: process?.terminal ?? false,
    commands: [...args],
    args: (process?.args ?? []).slice(1),
    ports: (plan.published ?? []).flatMap((port) =>
      Array.from({ length: port.count }, (_, i) => ({
        name: "",
        hostPort: port.hostPort + i,
        containerPort: port.podPort + i,
        protocol: port.protocol,
        hostIP: "",
      })),
    ),
    env: (process?.env ?? []).map(({ env }) => ({ env, value: "(not shown)" })),
    volumeMounts: [],
    labels: labelsOf(spec),
  };
}

const labelsOf = ({ hyperd }: PodSpec): Readonly<Record<string, string>> =>
  hyperd?.container?.labels ?? {};

/** How a container goes: `pending`, `running`, `succeeded` or `failed`. */
export function containerStatus({ id, name, row }: Container, process: ProcessRow | undefined) {
  const base = { name, containerID: id };
  const waiting = { reason: "" };
  const running = { startedAt: "" };
  const terminated = { exitCode: 0, reason: "", message: "", startedAt: "", finishedAt: "" };
  if (process === undefined || row.state === "creating")
    return { ...base, phase: "pending", waiting: { reason: "Pending" }, running, terminated };
  const startedAt = time(process.startedMs);
  if (process.endedMs === undefined && (row.state === "running" || row.state === "paused"))
    return { ...base, phase: "running", waiting, running: { startedAt }, terminated };
  const exitCode = exitCodeOf(process.end);
  const phase = exitCode === 0 ? "succeeded" : "failed";
  return {
    ...base,
    phase,
    waiting,
    running,
    terminated: {
      ...terminated,
      exitCode,
      reason: exitCode === 0 ? "Succeeded" : "Failed",
      startedAt,
      finishedAt: time(process.endedMs ?? row.changedMs),
    },
  };
}

/**
 * A container's process; undefined where it has not been started, or has ended with its machine.
 * Throws `AGENT_DISCONNECTED` when it runs and podnetd, which has just begun, cannot reach it yet.
 */
export function heldProcess(
  { id, name, state }: PodRow,
  { pods, records }: Pick<ServiceParts, "pods" | "records">,
): FollowedProcess | undefined {
  const process = pods.live(id)?.process;
  if (process !== undefined) return process;
  const row = records.processes.get(id);
  if (row === undefined || row.endedMs !== undefined || state !== "running") return undefined;
  throw new PodnetError("AGENT_DISCONNECTED", `The agent of pod "${name}" is not connected yet`, {
    hint: "Try again: podnetd reaches it as soon as it answers",
  });
}
