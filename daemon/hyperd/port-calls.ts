import { invalid } from "../../api/fields.ts";
import { validatePorts } from "../../api/validate/ports.ts";
import { isPodnetError, PodnetError } from "../../core/errors.ts";
import { printable } from "../../core/names.ts";
import { note, type ServiceParts } from "../api/context.ts";
import { type Answer, env, nothing, plain } from "./answers.ts";
import { readGo } from "./requests/go-json.ts";
import type { KnownPods } from "./known-pods.ts";
import { isMapped, mappingView, portMappings, publishedOf } from "./requests/port-mappings.ts";
import type { Call, Route } from "./routes.ts";

/** Port mappings of pods: listed, added and deleted while they run. */
export const portCalls = (parts: ServiceParts, known: KnownPods): readonly Route[] => [
  {
    method: "GET",
    path: "/pod/{id}/portmappings",
    role: "viewer",
    answer: ({ open: [id = ""] }) =>
      env({ portMappings: (known.find(id).plan.published ?? []).map(mappingView) }),
  },
  {
    method: "PUT",
    path: "/pod/{id}/portmappings/{action}",
    role: "operator",
    async answer(call) {
      const [id = "", action] = call.open;
      if (action === "add") return await addPorts(id, call, parts, known);
      if (action === "delete") return await deletePorts(id, call, parts, known);
      return plain("Only add or delete operation are permitted", 400);
    },
  },
];

async function addPorts(
  id: string,
  call: Call,
  parts: ServiceParts,
  known: KnownPods,
): Promise<Answer> {
  const row = known.find(id);
  const mappings = readGo(portMappings, await call.body(), "The port mappings");
  const ports = validatePorts(
    mappings.map((each, i) => publishedOf(each, `[${i}]`)),
    "ports",
  );
  note(parts, call.context, `publish ${row.name}`);
  await inHyperdsWords(() => parts.pods.changes.publish(row.id, ports));
  return nothing;
}

/** A host port that is taken has hyperd's sentence, in its spelling, which scripts look for. */
export async function inHyperdsWords<T>(work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (thrown) {
    const port = isPodnetError(thrown, "PORT_IN_USE") ? thrown.details["port"] : undefined;
    if (!isPodnetError(thrown) || port === undefined) throw thrown;
    throw new PodnetError("PORT_IN_USE", `Host port &{${port} ${port}} has aleady been used`, {
      hint: thrown.message,
      details: thrown.details,
      cause: thrown,
    });
  }
}

/** Deletes mappings, all of them or none. One that is not there is an error. */
async function deletePorts(
  id: string,
  call: Call,
  parts: ServiceParts,
  known: KnownPods,
): Promise<Answer> {
  const row = known.find(id);
  const mappings = readGo(portMappings, await call.body(), "The port mappings");
  const wanted = mappings.map((each, i) => publishedOf(each, `[${i}]`));
  const { published = [] } = row.plan;
  const missing = wanted.findIndex((one) => !published.some((has) => isMapped(has, one)));
  if (missing >= 0) {
    const { hostPort = "", containerPort = "" } = mappings[missing] ?? {};
    throw invalid(
      `[${missing}]`,
      `Pod ${row.name} has no port mapping ${printable(hostPort)}:${printable(containerPort)}`,
      "hyperctl ports ls shows those it has; none was deleted",
    );
  }
  const going = published.filter((has) => wanted.some((one) => isMapped(has, one)));
  note(parts, call.context, `unpublish ${row.name}`);
  await parts.pods.changes.unpublish(row.id, going);
  return nothing;
}
