import { exitCodeOf } from "../../pods/process/process-end.ts";
import type { Container } from "./container.ts";
import { idOf } from "../pod-ids.ts";

const time = (ms: number): string => new Date(ms).toISOString().replace(/\.\d+Z$/, "Z");

/** A container with its pod and state, as hyperd shows it. */
export const containerInfo = (found: Container) => ({
  podID: idOf(found.row),
  createdAt: Math.floor(found.row.createdMs / 1000),
  container: containerView(found),
  status: containerStatus(found),
});

/** A container as hyperd shows it. Values of variables may be secrets, and are not shown. */
export function containerView({ id, name, facts, row: { plan } }: Container) {
  return {
    name: `/${name}`,
    containerID: id,
    image: facts.image,
    imageID: facts.imageId,
    imagePullPolicy: "",
    workingDir: facts.workdir,
    user: facts.user,
    tty: facts.terminal,
    commands: [...facts.commands],
    args: [...facts.args],
    // Of the pod: its containers have one network.
    ports: (plan.published ?? []).flatMap((port) =>
      Array.from({ length: port.count }, (_, i) => ({
        name: "",
        hostPort: port.hostPort + i,
        containerPort: port.podPort + i,
        protocol: port.protocol,
        hostIP: "",
      })),
    ),
    env: facts.variables.map((env) => ({ env, value: "(not shown)" })),
    volumeMounts: facts.volumes.map(({ name: volume, path, readOnly }) => ({
      name: volume,
      mountPath: path,
      readOnly,
    })),
    labels: facts.labels,
  };
}

/** How a container goes: `pending`, `running`, `succeeded` or `failed`. */
export function containerStatus({ id, name, course }: Container) {
  const base = { name, containerID: id };
  const waiting = { reason: "" };
  const running = { startedAt: "" };
  const terminated = { exitCode: 0, reason: "", message: "", startedAt: "", finishedAt: "" };
  if (course.kind === "pending")
    return { ...base, phase: "pending", waiting: { reason: "Pending" }, running, terminated };
  const startedAt = time(course.startedMs);
  if (course.kind === "running")
    return { ...base, phase: "running", waiting, running: { startedAt }, terminated };
  const exitCode = exitCodeOf(course.end);
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
      finishedAt: time(course.endedMs),
    },
  };
}
