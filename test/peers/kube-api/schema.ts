/**
 * The fields of a Node and of a patch of one, as Kubernetes' OpenAPI publishes them (v1.30,
 * io.k8s.api.core.v1.Node), as far as anything here may name them. The stand-in refuses every other
 * field, which an API server itself does only with fieldValidation=Strict.
 */

type Shape =
  | "string"
  | "boolean"
  | "number"
  | "time"
  | { readonly list: Shape }
  | { readonly map: Shape }
  | { readonly [field: string]: Shape }
  | "any";

/** A Node, with the types of what is looked at. */
export interface NodeJson {
  readonly metadata: {
    readonly name: string;
    readonly uid: string;
    readonly resourceVersion: string;
    readonly annotations?: Readonly<Record<string, string>>;
    readonly [field: string]: unknown;
  };
  readonly status?: {
    readonly conditions?: readonly { readonly type?: string; readonly status?: string }[];
    readonly [field: string]: unknown;
  };
  readonly [field: string]: unknown;
}

const meta: Shape = {
  name: "string",
  generateName: "string",
  uid: "string",
  resourceVersion: "string",
  generation: "number",
  creationTimestamp: "time",
  deletionTimestamp: "time",
  labels: { map: "string" },
  annotations: { map: "string" },
  finalizers: { list: "string" },
  managedFields: { list: "any" },
};

const condition: Shape = {
  type: "string",
  status: "string",
  reason: "string",
  message: "string",
  lastHeartbeatTime: "time",
  lastTransitionTime: "time",
};

const node: Shape = {
  apiVersion: "string",
  kind: "string",
  metadata: meta,
  spec: {
    podCIDR: "string",
    podCIDRs: { list: "string" },
    providerID: "string",
    unschedulable: "boolean",
    taints: { list: { key: "string", value: "string", effect: "string", timeAdded: "time" } },
  },
  status: {
    capacity: { map: "string" },
    allocatable: { map: "string" },
    phase: "string",
    conditions: { list: condition },
    addresses: { list: { type: "string", address: "string" } },
    daemonEndpoints: "any",
    nodeInfo: "any",
    images: { list: "any" },
    volumesInUse: { list: "string" },
  },
};

const time = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)$/;

/** What is wrong with a Node, or with a patch of one, in which null takes a field away. */
export const wrongIn = (value: unknown): string[] => wrong(value, node, "");

function wrong(value: unknown, shape: Shape, at: string): string[] {
  if (value === null || shape === "any") return [];
  if (shape === "time")
    return typeof value === "string" && time.test(value) ? [] : [`${at}: not a time`];
  if (typeof shape === "string") return typeof value === shape ? [] : [`${at}: not a ${shape}`];
  if ("list" in shape)
    return Array.isArray(value)
      ? value.flatMap((each, i) => wrong(each, shape.list, `${at}[${i}]`))
      : [`${at}: not a list`];
  if (typeof value !== "object" || Array.isArray(value)) return [`${at}: not an object`];
  return Object.entries(value).flatMap(([name, field]) => {
    const inner = "map" in shape ? shape.map : (shape as Record<string, Shape>)[name];
    // (Directives of strategic merge patches, which Go's and kubectl's patches have.)
    if (/^\$(?:setElementOrder\/|retainKeys$|patch$)/.test(name)) return [];
    if (inner === undefined) return [`${at}.${name}: unknown field`];
    return wrong(field, inner, `${at}.${name}`);
  });
}

/** The most that a Node's annotations may have, names and values, bytes. */
const mostAnnotations = 256 << 10;
const annotationName =
  /^(?:[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?\/)?[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?$/;

/** What validation would say about a Node as it is to be stored. */
export function invalidIn({ metadata, status }: NodeJson): string[] {
  const { annotations = {} } = metadata;
  const names = Object.keys(annotations);
  const size = names.reduce(
    (sum, name) => sum + Buffer.byteLength(name) + Buffer.byteLength(String(annotations[name])),
    0,
  );
  const { conditions = [] } = status ?? {};
  return [
    ...names
      .filter((name) => !annotationName.test(name))
      .map((name) => `metadata.annotations: Invalid value: "${name}"`),
    ...(size > mostAnnotations
      ? ["metadata.annotations: Too long: must have at most 262144 bytes"]
      : []),
    ...conditions
      .filter((each) => !each.type || !["True", "False", "Unknown"].includes(String(each.status)))
      .map(({ type }) => `status.conditions: Invalid value: "${type}"`),
  ];
}

type Fields = Readonly<Record<string, unknown>>;

/** Lists that are merged by a field, where all others are replaced. */
const mergeKeys: Readonly<Record<string, string>> = { conditions: "type", addresses: "type" };

/** A strategic merge patch applied. */
export function merged(value: unknown, patch: unknown, name = ""): unknown {
  if (Array.isArray(patch)) {
    const key = mergeKeys[name];
    if (key === undefined || !Array.isArray(value)) return structuredClone(patch);
    const items = value as readonly Fields[];
    const changes = patch as readonly Fields[];
    const all = items.map((each) => {
      const change = changes.find((other) => other[key] === each[key]);
      return change === undefined ? each : merged(each, change);
    });
    const there = new Set(items.map((each) => each[key]));
    return [...all, ...changes.filter((each) => !there.has(each[key]))];
  }
  if (typeof patch !== "object" || patch === null) return patch;
  const result: Record<string, unknown> =
    typeof value === "object" && value !== null ? { ...value } : {};
  for (const [field, change] of Object.entries(patch)) {
    if (field.startsWith("$")) continue;
    if (change === null) delete result[field];
    else result[field] = merged(result[field], change, field);
  }
  return result;
}
