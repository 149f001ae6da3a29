import { PodnetError } from "../../../core/errors.ts";
import { printable } from "../../../core/names.ts";
import { note, type ServiceParts } from "../../api/context.ts";
import type { PodRow } from "../../pods/store/pod-row.ts";
import { done, env } from "../answers.ts";
import { shownOf } from "../container-calls.ts";
import type { KnownPods } from "../known-pods.ts";
import { readGo } from "../requests/go-json.ts";
import { refuseInContainer } from "../requests/refusals.ts";
import { type UserContainer, userContainer } from "../requests/user-pod.ts";
import { type Asking, type Call, parameter, type Route } from "../routes.ts";
import type { Container } from "./container.ts";
import type { InnerContainers } from "./inner-containers.ts";

/** Containers that are made and removed while their pod runs. */
export function innerCalls(
  parts: ServiceParts,
  known: KnownPods,
  inner: InnerContainers,
): readonly Route[] {
  const remove = async (call: Call) => {
    const found = known.container(parameter(call, "container"));
    await removeContainer(found, call.context, parts, inner);
    return env({});
  };
  return [
    {
      method: "POST",
      path: "/container/create",
      parameters: ["podId"],
      role: "operator",
      async answer(call) {
        const row = known.find(parameter(call, "podId"));
        const asked = readGo(userContainer, await call.body(), "The container");
        return done(await createContainer(row, asked, call.context, parts, inner), 201);
      },
    },
    {
      method: "POST",
      path: "/container/remove",
      parameters: ["container"],
      role: "operator",
      answer: remove,
    },
    {
      method: "DELETE",
      path: "/container",
      parameters: ["container"],
      role: "operator",
      answer: remove,
    },
  ];
}

/** Makes a container in a pod that runs. Answers its id. */
export async function createContainer(
  row: PodRow,
  asked: UserContainer,
  context: Asking,
  parts: ServiceParts,
  inner: InnerContainers,
): Promise<string> {
  if (row.plan.process !== undefined)
    throw new PodnetError("UNSUPPORTED", "The pod's one container is the root of its machine", {
      field: "podId",
      hint: "Create a pod with several containers, or with none, and add to that",
    });
  refuseInContainer(asked, "container", false, "");
  if (asked.ports.length > 0)
    throw new PodnetError("UNSUPPORTED", "A container that is added publishes no ports", {
      field: "ports",
      hint: "Publish them at the pod: PUT /pod/ID/portmappings/add",
    });
  const { volumes = [], sources = {} } = row.spec.hyperd ?? {};
  const pod = {
    files: [],
    volumes: volumes.map((name) => ({ name, source: sources[name] ?? "" })),
    shares: row.spec.shares ?? [],
    tty: false,
  };
  const planned = inner.plan([asked], pod, row.id, () => "container");
  note(parts, context, `create container ${printable(asked.name)} in ${row.name}`);
  const [first] = planned;
  if (first === undefined) throw new PodnetError("INTERNAL", "There is no container");
  return (await inner.create(row, first)).id;
}

/** Kills what runs in a container, and removes it. */
export async function removeContainer(
  found: Container,
  context: Asking,
  parts: ServiceParts,
  inner: InnerContainers,
): Promise<void> {
  if (found.place.container === undefined)
    throw new PodnetError("UNSUPPORTED", "The pod's one container goes with its pod", {
      field: "container",
      hint: "Remove the pod",
    });
  note(parts, context, `remove ${shownOf(found)}`);
  await inner.remove(found.id);
}
