import { timestampMs } from "@bufbuild/protobuf/wkt";
import { chosenLines } from "../../api/process/process-stream.ts";
import type { ContainerRow } from "../../cri/containers/rows.ts";
import type { PodRow } from "../../pods/store/pod-row.ts";
import type { Container, Course } from "./container.ts";
import { volumesOf } from "./inner-plan.ts";
import type { InnerContainers } from "./inner-containers.ts";

/** One of the containers in a pod's machine. */
export function innerContainerOf(
  row: PodRow,
  { id, plan }: ContainerRow,
  inner: InnerContainers,
): Container {
  const { name } = plan.metadata;
  const { start } = plan;
  const { env, workdir, user = "" } = start;
  return {
    id,
    name,
    row,
    facts: {
      image: plan.image,
      imageId: plan.digest,
      workdir,
      user,
      terminal: start.terminal,
      commands: [...start.args],
      args: start.args.slice(1),
      variables: env.map((each) => each.env),
      labels: plan.labels,
      volumes: volumesOf(plan, row.spec.hyperd?.volumes),
    },
    get course() {
      return courseOf(inner.find(id));
    },
    place: { container: id, env, workdir, user },
    start: () => inner.startOne(id),
    stop: (ms, signal) => inner.stop(id, signal, ms),
    kill: (signal) => inner.kill(id, signal),
    rename: (to) => inner.rename(id, to),
    held: () => inner.held(id),
    next: (signal) => inner.next(id, signal),
    over: () => inner.over(id),
    kept({ latestStart, ...wanted }) {
      const since = wanted.since === undefined ? 0 : timestampMs(wanted.since);
      const startedMs = latestStart ? (inner.find(id).startedMs ?? 0) : 0;
      const { log } = plan;
      const all = log === undefined ? [] : inner.logs.read(log);
      return chosenLines(all, Math.max(since, startedMs), wanted.tailLines);
    },
  };
}

/** One that was made in a machine that has ended was never started. */
function courseOf({ state, startedMs, endedMs, end }: ContainerRow): Course {
  if (startedMs === undefined) return { kind: "pending" };
  if (state === "running") return { kind: "running", startedMs };
  return { kind: "ended", startedMs, endedMs: endedMs ?? startedMs, end };
}
