import type { JsonObject } from "@bufbuild/protobuf";
import {
  type NetworkSpec,
  NetworkSpecSchema,
} from "../../../api/gen/podnet/v1/network_service_pb.ts";
import { type PodSpec, PodSpecSchema } from "../../../api/gen/podnet/v1/pod_spec_pb.ts";
import { readJson } from "../../../api/json.ts";
import { PodnetError } from "../../../core/errors.ts";
import { printable } from "../../../core/names.ts";
import { nearest } from "../../../core/nearest.ts";
import { readDocuments } from "../../pod-file.ts";

/** A document of a file: what it asks for, and its fields as they are written. */
export type Asked =
  | { readonly kind: "network"; readonly named: JsonObject; readonly spec: NetworkSpec }
  | { readonly kind: "policy"; readonly named: JsonObject }
  | { readonly kind: "pod"; readonly named: JsonObject; readonly spec: PodSpec };

const kinds = ["Pod", "Network", "Policy", "NetworkPolicy"];

/**
 * Reads the documents of files, in the order in which they are applied: what pods need comes before
 * them. Throws `INVALID_ARGUMENT`, `UNKNOWN_FIELD`.
 */
export async function readAsked(files: readonly string[]): Promise<readonly Asked[]> {
  const read = await Promise.all(
    files.map(async (file) =>
      (await readDocuments(file)).map((value, i) => askedOf(value, `${file}, document ${i + 1}`)),
    ),
  );
  const all = read.flat();
  if (all.length === 0)
    throw new PodnetError("INVALID_ARGUMENT", "The file has no document", {
      hint: "See docs/how-to/apply.md for a file",
    });
  refuseTwice(all);
  return all.toSorted((a, b) => turnOf(a) - turnOf(b));
}

function askedOf(value: unknown, where: string): Asked {
  if (typeof value !== "object" || value === null || Array.isArray(value))
    throw wrong(where, "is no object with fields", `Begin it with kind: ${kinds.join(", ")}`);
  const { kind, apiVersion, ...named } = value as JsonObject;
  try {
    if (kind === "NetworkPolicy") return { kind: "policy", named: value as JsonObject };
    if (apiVersion !== undefined && apiVersion !== "podnet.v1")
      throw wrong(
        where,
        "has another apiVersion",
        "Write podnet.v1, or leave it out",
        "apiVersion",
      );
    if (kind === "Policy") return { kind: "policy", named };
    if (kind === "Network")
      return withName({ kind: "network", named, spec: readJson(NetworkSpecSchema, named) });
    if (kind === "Pod")
      return withName({ kind: "pod", named, spec: readJson(PodSpecSchema, named) });
  } catch (thrown) {
    throw thrown instanceof PodnetError ? thrown.with({ step: where }) : thrown;
  }
  const meant = typeof kind === "string" ? nearest(kind, kinds) : undefined;
  throw wrong(
    where,
    typeof kind === "string" ? `has the kind "${printable(kind)}"` : "has no kind",
    `${meant === undefined ? "" : `Did you mean ${meant}? `}There are ${kinds.join(", ")}`,
    "kind",
  );
}

const wrong = (where: string, what: string, hint: string, field?: string): PodnetError =>
  new PodnetError("INVALID_ARGUMENT", `"${printable(where)}" ${what}`, {
    hint,
    ...(field === undefined ? {} : { field }),
  });

/** By its name a network or pod is found again. */
function withName<One extends Asked & { readonly spec: { readonly name: string } }>(
  asked: One,
): One {
  if (asked.spec.name !== "") return asked;
  throw new PodnetError("INVALID_ARGUMENT", `A ${asked.kind} in a file needs a name`, {
    field: "name",
    hint: "Write name: and a name of your choice; the next apply finds it by this name",
  });
}

function refuseTwice(all: readonly Asked[]): void {
  const seen = new Set<string>();
  for (const who of all.flatMap(subjects)) {
    if (seen.has(who))
      throw new PodnetError("INVALID_ARGUMENT", `"${printable(who)}" is there twice`, {
        hint: "Leave one of the two out: each apply would change it to and fro",
      });
    seen.add(who);
  }
}

/** What a document describes: a pod or network with `policy` also describes a policy of its own. */
function subjects(asked: Asked): readonly string[] {
  if (asked.kind === "policy") return [`policy ${policyName(asked.named)}`];
  const { kind, named, spec } = asked;
  const own = Object.hasOwn(named, "policy") ? [`policy ${kind}:${spec.name}`] : [];
  return [`${kind} ${spec.name}`, ...own];
}

/** What a policy is called, as far as its document says. */
export function policyName({ name, metadata }: JsonObject): string {
  if (typeof name === "string") return name;
  const { namespace, name: own } = (metadata ?? {}) as Record<string, unknown>;
  return `${typeof namespace === "string" ? namespace : "default"}/${typeof own === "string" ? own : ""}`;
}

/** Networks, then policies, then pods, which begin with their policies; rules of pods come last. */
function turnOf(asked: Asked): number {
  if (asked.kind === "network") return 0;
  if (asked.kind === "pod") return 2;
  return policyName(asked.named).startsWith("pod:") ? 3 : 1;
}
