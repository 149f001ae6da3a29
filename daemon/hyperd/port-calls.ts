import { invalid } from "../../api/fields.ts";
import { validatePorts } from "../../api/validate/ports.ts";
import { isPodnetError, PodnetError } from "../../core/errors.ts";
import { printable } from "../../core/names.ts";
import { documentOf } from "../../policy/read-document.ts";
import { note, type ServiceParts } from "../api/context.ts";
import { KeyedLock } from "../reconcile/keyed-lock.ts";
import type { PortSpec } from "../../api/pod-spec.ts";
import type { PodRow } from "../pods/store/pod-row.ts";
import { env, nothing, plain } from "./answers.ts";
import { readGo } from "./requests/go-json.ts";
import { type KnownPods } from "./known-pods.ts";
import {
  isMapped,
  mappingView,
  type PortMapping,
  portMappings,
  publishedOf,
} from "./requests/port-mappings.ts";
import { areOfWhiteLists, whiteListRules } from "./requests/white-lists.ts";
import type { Asking, Route } from "./routes.ts";

/** Port mappings of pods: listed, added and deleted while they run. */
export const portCalls = (parts: ServiceParts, known: KnownPods): readonly Route[] => [
  {
    method: "GET",
    path: "/pod/{id}/portmappings",
    parameters: [],
    role: "viewer",
    answer: ({ open: [id = ""] }) => env({ portMappings: mappingsOf(known.find(id)) }),
  },
  {
    method: "PUT",
    path: "/pod/{id}/portmappings/{action}",
    parameters: [],
    role: "operator",
    async answer({ open: [id = "", action], body, context }) {
      if (action !== "add" && action !== "delete")
        return plain("Only add or delete operation are permitted", 400);
      const row = known.find(id);
      const mappings = readGo(portMappings, await body(), "The port mappings");
      const change = action === "add" ? addPorts : deletePorts;
      await change(row, mappings, context, parts);
      return nothing;
    },
  },
];

export const mappingsOf = ({ plan }: PodRow): readonly PortMapping[] =>
  (plan.published ?? []).map(mappingView);

/** A pod's mappings and the rules of its white lists change together. */
const turns = new KeyedLock<string>();

/** Publishes ports, all of them or none. */
export async function addPorts(
  row: PodRow,
  mappings: readonly PortMapping[],
  context: Asking,
  parts: ServiceParts,
): Promise<void> {
  const ports = validatePorts(mappings.map((each, i) => publishedOf(each, `[${i}]`)));
  note(parts, context, `publish ${row.name}`);
  await turns.run(row.id, async () => {
    await inHyperdsWords(() => parts.pods.changes.publish(row.id, ports));
    // Until its rules follow, a port is closed to external networks.
    const { name, spec, plan } = parts.pods.find(row.id);
    await followPorts({ name, spec, published: plan.published ?? [] }, parts);
  });
}

interface PodPorts extends Pick<PodRow, "name" | "spec"> {
  readonly published: readonly PortSpec[];
}

/** Rules that came of white lists follow the ports; those of an administrator stay. */
async function followPorts(
  { name, spec, published }: PodPorts,
  { policies }: ServiceParts,
): Promise<void> {
  const lists = spec.hyperd?.whiteLists;
  if (lists === undefined || !areOfWhiteLists(spec.policy)) return;
  await policies.apply(documentOf({ kind: "pod", name }, whiteListRules(lists, published)));
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
export async function deletePorts(
  row: PodRow,
  mappings: readonly PortMapping[],
  context: Asking,
  parts: ServiceParts,
): Promise<void> {
  await turns.run(row.id, () => deleteNow(parts.pods.find(row.id), mappings, context, parts));
}

async function deleteNow(
  row: PodRow,
  mappings: readonly PortMapping[],
  context: Asking,
  parts: ServiceParts,
): Promise<void> {
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
  note(parts, context, `unpublish ${row.name}`);
  const { name, spec } = row;
  const left = published.filter((has) => !going.includes(has));
  await followPorts({ name, spec, published: left }, parts);
  try {
    await parts.pods.changes.unpublish(row.id, going);
  } catch (thrown) {
    await followPorts({ name, spec, published }, parts);
    throw thrown;
  }
}
