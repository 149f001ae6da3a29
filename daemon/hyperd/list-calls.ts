import { PodnetError } from "../../core/errors.ts";
import { printable } from "../../core/names.ts";
import { stateOf } from "../pods/store/pod-rows.ts";
import type { PodState } from "../pods/store/pod-row.ts";
import { type Answer, env } from "./answers.ts";
import { containerStatus } from "./containers/container-info.ts";
import { type KnownPods } from "./known-pods.ts";
import { type AnyPod, idOf, vmOf } from "./pod-ids.ts";
import { parameter, type Route } from "./routes.ts";

/** How hyperd names the states of pods: a stopped one has failed. */
const statuses: Readonly<Record<PodState, string>> = {
  creating: "pending",
  running: "running",
  paused: "paused",
  stopping: "stopping",
  stopped: "failed",
  failed: "failed",
  deleting: "stopping",
};

/** `GET /list`: pods, containers or machines, each a line of text. */
export const listCalls = (known: KnownPods): readonly Route[] => [
  {
    method: "GET",
    path: "/list",
    parameters: ["item", "pod", "vm"],
    role: "viewer",
    answer: (call) => {
      const pods = chosen(known, parameter(call, "pod"), parameter(call, "vm"));
      return listed(parameter(call, "item"), pods, known);
    },
  },
];

function listed(item: string, pods: readonly AnyPod[], known: KnownPods): Answer {
  // Created, as hyperd has it. Each entry is a line, whose values colons divide.
  const answer = (key: string, entries: readonly object[]): Answer =>
    env({ item, [key]: entries.map((each) => Object.values(each).join(":")) }, 201);
  switch (item) {
    case "pod":
      return answer("podData", pods.map(podEntry));
    case "vm":
      return answer("vmData", vmEntries(pods));
    case "container":
      return answer("cData", containerEntries(pods, known));
    default:
      throw new PodnetError("INVALID_ARGUMENT", `Can not support ${printable(item)} list!`, {
        field: "item",
        hint: "Use pod, container or vm",
      });
  }
}

/** A pod in a list. The order of values is that of a line. */
export const podEntry = (row: AnyPod) => ({
  podID: idOf(row),
  podName: idOf(row),
  vmID: vmOf(row),
  status: statuses[stateOf(row).state],
});

/** Pods that have machines. */
export const vmEntries = (pods: readonly AnyPod[]) =>
  pods
    .filter((row) => vmOf(row) !== "")
    .map((row) => ({
      vmID: vmOf(row),
      podID: idOf(row),
      status: stateOf(row).state === "paused" ? "paused" : "associated",
    }));

export const containerEntries = (pods: readonly AnyPod[], known: KnownPods) =>
  known.containers(pods).map((each) => ({
    containerID: each.id,
    containerName: each.name,
    podID: idOf(each.row),
    status: containerStatus(each).phase,
  }));

/** The pods that are asked for: all, or the one with an id, or in a machine. */
export function chosen(known: KnownPods, pod: string, vm: string): readonly AnyPod[] {
  const pods =
    pod === "" ? known.list() : [known.find(pod, (id) => `Cannot find specified pod ${id}`)];
  if (vm === "") return pods;
  if (!known.list().some((row) => vmOf(row) === vm))
    throw new PodnetError("POD_NOT_FOUND", `Cannot find specified vm ${printable(vm)}`, {
      hint: "hyperctl list vm shows those there are",
    });
  return pods.filter((row) => vmOf(row) === vm);
}
