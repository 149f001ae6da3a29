import { PodnetError } from "../../core/errors.ts";
import { printable } from "../../core/names.ts";
import type { ServiceParts } from "../api/context.ts";
import { stateOf } from "../pods/store/pod-rows.ts";
import type { PodState } from "../pods/store/pod-row.ts";
import { type Answer, env } from "./answers.ts";
import { containerStatus } from "./container-info.ts";
import { type AnyPod, idOf, type KnownPods, vmOf } from "./known-pods.ts";
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
export const listCalls = (parts: ServiceParts, known: KnownPods): readonly Route[] => [
  {
    method: "GET",
    path: "/list",
    role: "viewer",
    answer: (call) => {
      const pods = chosen(known, parameter(call, "pod"), parameter(call, "vm"));
      return listed(parameter(call, "item"), pods, parts, known);
    },
  },
];

function listed(
  item: string,
  pods: readonly AnyPod[],
  parts: ServiceParts,
  known: KnownPods,
): Answer {
  // Created, as hyperd has it.
  const answer = (key: string, lines: readonly string[]): Answer =>
    env({ item, [key]: lines }, 201);
  switch (item) {
    case "pod":
      return answer("podData", pods.map(podLine));
    case "vm":
      return answer(
        "vmData",
        pods.flatMap((row) => (vmOf(row) === "" ? [] : [vmLine(row)])),
      );
    case "container":
      return answer(
        "cData",
        known.containers(pods).map((each) => {
          const { phase } = containerStatus(each, parts.records.process(each.row.id));
          return [each.id, each.name, idOf(each.row), phase].join(":");
        }),
      );
    default:
      throw new PodnetError("INVALID_ARGUMENT", `Can not support ${printable(item)} list!`, {
        field: "item",
        hint: "Use pod, container or vm",
      });
  }
}

const podLine = (row: AnyPod): string =>
  [idOf(row), idOf(row), vmOf(row), statuses[stateOf(row).state]].join(":");

const vmLine = (row: AnyPod): string =>
  [vmOf(row), idOf(row), stateOf(row).state === "paused" ? "paused" : "associated"].join(":");

/** The pods that are asked for: all, or the one with an id, or in a machine. */
function chosen(known: KnownPods, pod: string, vm: string): readonly AnyPod[] {
  const pods =
    pod === "" ? known.list() : [known.find(pod, (id) => `Cannot find specified pod ${id}`)];
  if (vm === "") return pods;
  if (!known.list().some((row) => vmOf(row) === vm))
    throw new PodnetError("POD_NOT_FOUND", `Cannot find specified vm ${printable(vm)}`, {
      hint: "hyperctl list vm shows those there are",
    });
  return pods.filter((row) => vmOf(row) === vm);
}
