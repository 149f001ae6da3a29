import { connect } from "node:net";
import { setTimeout as delay } from "node:timers/promises";
import type { Podnet } from "../api/client.ts";
import { InterfaceState, type Pod as PodRecord, PodState } from "../api/gen/podnet/v1/pod_pb.ts";
import { WatchPodsResponse_Kind as Kind } from "../api/gen/podnet/v1/pod_service_pb.ts";
import { fromErrorInfo } from "../api/codes.ts";
import { PodnetError } from "../core/errors.ts";

export type Condition = "running" | "configured" | "stopped" | `port:${number}`;

export interface Waiting {
  /** A minute when left out. */
  readonly timeoutMs?: number;
  readonly signal?: AbortSignal;
}

/** Between two attempts to connect, milliseconds. */
const attemptMs = 50;

/** Resolves to the pod once a condition holds: see `Pod.waitFor`. */
export async function waitFor(
  services: Podnet,
  pod: PodRecord,
  condition: Condition,
  { timeoutMs = 60_000, signal }: Waiting,
): Promise<PodRecord> {
  const late = AbortSignal.timeout(timeoutMs);
  const both = signal === undefined ? late : AbortSignal.any([late, signal]);
  try {
    if (condition === "running") return await stateOf(services, pod.id, both, isRunning);
    if (condition === "stopped") return await stateOf(services, pod.id, both, isStopped);
    const port = condition === "configured" ? undefined : portOf(condition);
    const configured = await stateOf(services, pod.id, both, isConfigured);
    if (port !== undefined) await answersAt(configured, port, both);
    return configured;
  } catch (thrown) {
    if (!late.aborted || signal?.aborted === true) throw thrown;
    throw new PodnetError(
      "DEADLINE_EXCEEDED",
      `Pod "${pod.name}" is not ${said(condition)} after ${timeoutMs} ms`,
      { hint: "Wait longer, or see what the pod prints: podnet logs", cause: thrown },
    );
  }
}

/** `reachable at port 22` */
export const said = (condition: Condition): string =>
  condition.startsWith("port:") ? `reachable at ${condition.replace(":", " ")}` : condition;

function portOf(condition: Condition): number {
  const port = Number(/^port:([1-9][0-9]{0,4})$/.exec(condition)?.[1]);
  if (port <= 65_535) return port;
  throw new PodnetError("INVALID_ARGUMENT", `"${condition}" is not a condition`, {
    field: "condition",
    hint: "Write running, configured, stopped, or port: and a number up to 65535",
  });
}

const isRunning = ({ state }: PodRecord): boolean => state === PodState.RUNNING;

/** Its VM has ended, whatever ended it. */
const isStopped = ({ state }: PodRecord): boolean =>
  state === PodState.STOPPED || state === PodState.FAILED;

const isConfigured = (pod: PodRecord): boolean =>
  isRunning(pod) && pod.interfaces.every(({ state }) => state === InterfaceState.CONFIGURED);

/** The pod once it is as `holds` says, by the events that a watch sends. */
async function stateOf(
  { pods }: Podnet,
  id: string,
  signal: AbortSignal,
  holds: (pod: PodRecord) => boolean,
): Promise<PodRecord> {
  for await (const { kind, pod } of pods.watch({ idOrName: id }, { signal })) {
    if (kind === Kind.DELETED)
      throw new PodnetError("POD_NOT_FOUND", "The pod was deleted meanwhile");
    if (pod === undefined) continue;
    if (holds(pod)) return pod;
    if (pod.state === PodState.FAILED && pod.failure !== undefined)
      throw fromErrorInfo(pod.failure);
  }
  throw new PodnetError("DAEMON_UNREACHABLE", "podnetd ended the watch of the pod", {
    hint: "Wait again once podnetd runs",
  });
}

/** Resolves once one of the pod's addresses accepts a connection. */
async function answersAt(pod: PodRecord, port: number, signal: AbortSignal): Promise<void> {
  const addresses = pod.interfaces.flatMap((each) => each.addresses);
  if (addresses.length === 0)
    throw new PodnetError("INVALID_ARGUMENT", `Pod "${pod.name}" has no address`, {
      field: "condition",
      hint: "Wait for running or configured",
    });
  for (;;) {
    for (const address of addresses)
      if (await accepts(address.replace(/\/.*$/, ""), port, signal)) return;
    await delay(attemptMs, undefined, { signal });
  }
}

function accepts(host: string, port: number, signal: AbortSignal): Promise<boolean> {
  signal.throwIfAborted();
  return new Promise((resolve) => {
    const socket = connect({ host, port, timeout: 1000 });
    const done = (answer: boolean) => (): void => {
      signal.removeEventListener("abort", refused);
      socket.destroy();
      resolve(answer);
    };
    const refused = done(false);
    signal.addEventListener("abort", refused, { once: true });
    socket.once("connect", done(true)).once("error", refused).once("timeout", refused);
  });
}
