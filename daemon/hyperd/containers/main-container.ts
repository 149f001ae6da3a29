import { createHash } from "node:crypto";
import { PodnetError } from "../../../core/errors.ts";
import type { ServiceParts } from "../../api/context.ts";
import { keptLines, nextProcess } from "../../api/process/process-stream.ts";
import type { FollowedProcess } from "../../pods/process/followed-process.ts";
import type { ProcessPlan } from "../../pods/process/plan-process.ts";
import type { PodRow } from "../../pods/store/pod-row.ts";
import { endOf } from "../known-execs.ts";
import { idOf } from "../pod-ids.ts";
import { work } from "../work.ts";
import type { Container, Course } from "./container.ts";

/** The main process of a pod as its one container. */
export function mainContainer(row: PodRow, process: ProcessPlan, parts: ServiceParts): Container {
  const { spec } = row;
  const { container } = spec.hyperd ?? {};
  const { pods } = parts;
  const name = container?.name ?? "";
  const { env, workdir, user = "" } = process;
  return {
    id: createHash("sha256").update(`container of pod ${row.id}`).digest("hex"),
    name: name === "" ? idOf(row) : name,
    row,
    facts: {
      image: container?.image ?? spec.boot.image ?? "",
      imageId: process.digest ?? "",
      workdir,
      user,
      terminal: process.terminal,
      commands: spec.process?.args ?? [],
      args: process.args.slice(1),
      variables: env.map((each) => each.env),
      labels: container?.labels ?? {},
      volumes: [],
    },
    get course() {
      return courseOf(row, parts);
    },
    place: { env, workdir, user },
    async start(context) {
      await pods.start(row.id, work(context));
    },
    async stop(ms, signal) {
      if (ms !== undefined) await endWithin(row, ms, parts, signal);
      await pods.stop(row.id, { force: ms !== undefined });
    },
    async kill(signal) {
      await processOf(row, parts).access.signal(signal);
    },
    async rename(to) {
      const { hyperd } = pods.find(row.id).spec;
      if (hyperd?.container === undefined)
        throw new PodnetError("UNSUPPORTED", `Pod ${row.name} was not created by hyperd's API`, {
          field: "oldName",
          hint: "Its container has the pod's name, which stays",
        });
      await pods.setHyperd(row.id, { ...hyperd, container: { ...hyperd.container, name: to } });
    },
    held: () => heldProcess(row, parts),
    next: (signal) => nextProcess(row.id, undefined, parts, signal),
    over: () => pods.live(row.id)?.process?.over,
    kept: (wanted) => keptLines(row.id, wanted, parts),
  };
}

function courseOf(row: PodRow, { records }: Pick<ServiceParts, "records">): Course {
  const process = records.processes.get(row.id);
  if (process === undefined || row.state === "creating") return { kind: "pending" };
  const { startedMs, endedMs, end } = process;
  if (endedMs === undefined && (row.state === "running" || row.state === "paused"))
    return { kind: "running", startedMs };
  return { kind: "ended", startedMs, endedMs: endedMs ?? row.changedMs, end };
}

/**
 * A container's process; undefined where it has not been started, or has ended with its machine.
 * Throws `AGENT_DISCONNECTED` when it runs and podnetd, which has just begun, cannot reach it yet.
 */
function heldProcess(
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

/** The process of a container that runs. Throws `WRONG_STATE` with hyperd's sentence. */
function processOf(row: PodRow, parts: ServiceParts): FollowedProcess {
  const process = heldProcess(row, parts);
  if (process !== undefined && process.end === undefined) return process;
  throw new PodnetError("WRONG_STATE", `container ${idOf(row)} is stopped`, {
    hint: "Start its pod",
  });
}

/** Sends the stop signal of a container, and waits so long for its end. */
async function endWithin(
  { id }: PodRow,
  ms: number,
  { pods }: ServiceParts,
  signal: AbortSignal,
): Promise<void> {
  const live = pods.live(id);
  const { process, plan } = live ?? {};
  if (process === undefined || plan?.process === undefined) return;
  if (await process.trySignal(plan.process.stopSignal)) await endOf(process.over, signal, ms);
}
