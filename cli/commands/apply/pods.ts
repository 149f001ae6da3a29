import { create, type JsonObject, toJson } from "@bufbuild/protobuf";
import type { Podnet } from "../../../api/client.ts";
import { type Pod, PodState } from "../../../api/gen/podnet/v1/pod_pb.ts";
import { type PodSpec, PodSpecSchema } from "../../../api/gen/podnet/v1/pod_spec_pb.ts";
import { hiddenContent } from "../../../api/validate/files.ts";
import { validateSpec } from "../../../api/validate/validate.ts";
import { isPodnetError } from "../../../core/errors.ts";
import type { NetworkName } from "../../../core/names.ts";
import { stateName } from "../../views/pod-view.ts";
import { differences } from "./differences.ts";
import { diskChanges } from "./disks.ts";
import { interfaceChanges } from "./interfaces.ts";
import { type Change, changed, type Item, type Step, type ToCome } from "./item.ts";
import { fieldsOf } from "./policies.ts";
import { portChanges, stepsOf } from "./ports.ts";

interface AskedPod {
  readonly named: JsonObject;
  readonly spec: PodSpec;
}

/** Fields that change while a pod exists; `name` is how it is found. */
const live: ReadonlySet<string> = new Set([
  "name",
  "labels",
  "interfaces",
  "ports",
  "policy",
  "disks",
  "resources",
]);

/** What a pod's document means. */
export async function planPod(
  podnet: Podnet,
  asked: AskedPod,
  { networks }: ToCome,
  signal: AbortSignal,
): Promise<Item> {
  const { named, spec } = asked;
  const pod = await found(podnet, spec.name, signal);
  if (pod === undefined) {
    await check(podnet, spec, networks, signal);
    const make: Step = (client, at) => client.pods.create({ spec }, { signal: at });
    const changes = differences(PodSpecSchema, named, json(shown(spec)), {});
    return {
      kind: "pod",
      name: spec.name,
      action: "create",
      changes: changes.filter(({ field }) => field !== "name"),
      steps: [make],
    };
  }
  checkLive(spec);
  const interfaces = interfaceChanges(asked, pod);
  const ports = portChanges(
    asked,
    pod,
    await portsMoving(
      podnet,
      pod,
      interfaces.probes,
      (error) => waits(spec, networks, error),
      signal,
    ),
  );
  const disks = diskChanges(asked, pod);
  const parts = [
    labelChanges(asked, pod),
    policyChanges(asked, pod),
    await resourceChanges(podnet, asked, pod, signal),
    whileRunning(pod, {
      changes: [...interfaces.changes, ...ports.changes, ...disks.changes],
      steps: [...stepsOf(pod.id, ports, interfaces.steps), ...disks.steps],
    }),
  ];
  const changes = [...fixedChanges(asked, pod), ...parts.flatMap((part) => part.changes)];
  return changed("pod", spec.name, { changes, steps: parts.flatMap(({ steps }) => steps) });
}

/** Host ports of ports that lead to an address which the changes remove. */
async function portsMoving(
  podnet: Podnet,
  { state }: Pod,
  probes: readonly Step[],
  isExpected: (error: unknown) => boolean,
  signal: AbortSignal,
): Promise<ReadonlySet<number>> {
  const moving: number[] = [];
  if (state !== PodState.RUNNING) return new Set();
  for (const probe of probes) {
    try {
      await probe(podnet, signal);
    } catch (thrown) {
      const ports = isPodnetError(thrown, "ADDRESS_IN_USE") ? thrown.details["host_ports"] : "";
      if (ports !== "" && ports !== undefined) moving.push(...String(ports).split(" ").map(Number));
      else if (!isExpected(thrown)) throw thrown;
    }
  }
  return new Set(moving);
}

/** A name alone is meant, not the beginning of an id. */
async function found(podnet: Podnet, name: string, signal: AbortSignal): Promise<Pod | undefined> {
  try {
    const { pod } = await podnet.pods.get({ idOrName: name }, { signal });
    return pod?.name === name ? pod : undefined;
  } catch (thrown) {
    // A name may begin several ids, or be none that a pod can have: creating it says so.
    if (isPodnetError(thrown, "POD_NOT_FOUND", "INVALID_ARGUMENT")) return undefined;
    throw thrown;
  }
}

/** Checks what changes while a pod exists, before the first call that changes something. */
function checkLive({ name, labels, interfaces, ports, disks }: PodSpec): void {
  validateSpec(create(PodSpecSchema, { name, labels, interfaces, ports, disks }), {
    network: "default" as NetworkName,
  });
}

/** A pod's size, as far as its document names it: podnetd says whether it can have another one. */
async function resourceChanges(
  podnet: Podnet,
  { named, spec }: AskedPod,
  pod: Pod,
  signal: AbortSignal,
): Promise<Part> {
  const asked = Object.fromEntries(Object.entries(named).filter(([key]) => key === "resources"));
  const { resources } = spec;
  if (pod.spec === undefined || resources === undefined) return nothing;
  const changes = differences(PodSpecSchema, asked, json(spec), json(pod.spec));
  if (changes.length === 0) return nothing;
  const request = { idOrName: pod.id, resources };
  try {
    await podnet.pods.update({ ...request, planOnly: true }, { signal });
  } catch (thrown) {
    if (!isPodnetError(thrown, ...notResized)) throw thrown;
    const refused = [thrown.message, thrown.hint].filter(Boolean).join(": ");
    return { changes: changes.map((change) => ({ ...change, refused })), steps: [] };
  }
  return { changes, steps: [({ pods }, at) => pods.update(request, { signal: at })] };
}

const notResized = ["UNSUPPORTED", "INVALID_ARGUMENT", "MEMORY_TOO_SMALL", "WRONG_STATE"] as const;

/** Whether podnetd refuses something for want of what documents before it bring. */
const waits = (spec: PodSpec, networks: ToCome["networks"], thrown: unknown): boolean =>
  spec.interfaces.some(({ network }) => networks.has(network)) &&
  isPodnetError(thrown, "NETWORK_NOT_FOUND", "ADDRESS_OUT_OF_RANGE", "ADDRESS_RESERVED");

/** podnetd looks at a create that is to come, as far as what it needs is there. */
async function check(
  podnet: Podnet,
  spec: PodSpec,
  networks: ToCome["networks"],
  signal: AbortSignal,
): Promise<void> {
  try {
    await podnet.pods.create({ spec, planOnly: true }, { signal });
  } catch (thrown) {
    if (!waits(spec, networks, thrown)) throw thrown;
  }
}

const json = (spec: PodSpec): JsonObject =>
  toJson(PodSpecSchema, spec, { alwaysEmitImplicit: true }) as JsonObject;

/** The spec as podnetd shows it: what may be secret by its size alone. */
function shown(spec: PodSpec): PodSpec {
  const { boot, files } = spec;
  const bytes = (text: string): Uint8Array<ArrayBuffer> => Uint8Array.from(Buffer.from(text));
  const { cloudInit } = boot ?? {};
  const userData = cloudInit?.userData ?? "";
  return {
    ...spec,
    files: files.map((file) => ({ ...file, content: bytes(hiddenContent(file.content.length)) })),
    ...(boot === undefined || cloudInit === undefined || userData === ""
      ? {}
      : {
          boot: {
            ...boot,
            cloudInit: { ...cloudInit, userData: hiddenContent(Buffer.byteLength(userData)) },
          },
        }),
  };
}

/** Fields that a pod has for its life, and that the document wants otherwise. */
function fixedChanges({ named, spec }: AskedPod, pod: Pod): Change[] {
  if (pod.spec === undefined) return [];
  const fixed = Object.fromEntries(Object.entries(named).filter(([key]) => !live.has(key)));
  const refused = `it is fixed for a pod's life: podnet delete ${pod.name}, then apply again`;
  return differences(PodSpecSchema, fixed, json(shown(spec)), json(pod.spec)).map((change) => ({
    ...change,
    refused,
  }));
}

type Part = Pick<Item, "changes" | "steps">;

const nothing: Part = { changes: [], steps: [] };

function labelChanges({ named, spec }: AskedPod, pod: Pod): Part {
  if (!Object.hasOwn(named, "labels")) return nothing;
  const changes = fieldsOf(pod.labels, spec.labels);
  if (changes.length === 0) return nothing;
  const remove = Object.keys(pod.labels).filter((key) => !Object.hasOwn(spec.labels, key));
  const set = Object.fromEntries(
    Object.entries(spec.labels).filter(([key, value]) => pod.labels[key] !== value),
  );
  return {
    changes: changes.map((change) => ({ ...change, field: `labels.${change.field}` })),
    steps: [({ pods }, signal) => pods.label({ idOrName: pod.id, set, remove }, { signal })],
  };
}

function policyChanges({ named, spec }: AskedPod, pod: Pod): Part {
  const wanted = spec.policy;
  if (!Object.hasOwn(named, "policy") || wanted === undefined) return nothing;
  const changes = fieldsOf(pod.spec?.policy ?? {}, wanted);
  if (changes.length === 0) return nothing;
  const document = { ...wanted, name: `pod:${pod.name}` };
  return {
    changes: changes.map((change) => ({ ...change, field: `policy.${change.field}` })),
    steps: [({ policies }, signal) => policies.apply({ document }, { signal })],
  };
}

/** Interfaces, ports and disks are changed in the guest, and on the host of a VM that runs. */
function whileRunning(pod: Pod, part: Part): Part {
  if (pod.state === PodState.RUNNING || part.changes.length === 0) return part;
  const refused = `the pod is ${stateName(pod.state)}: podnet start ${pod.name}, then apply again`;
  return { changes: part.changes.map((change) => ({ refused, ...change })), steps: [] };
}
