import { z } from "zod";
import { validateLabelsChange } from "../../api/validate/validate.ts";
import { PodnetError } from "../../core/errors.ts";
import { printable } from "../../core/names.ts";
import { note, type ServiceParts } from "../api/context.ts";
import { refuseOthersLinks } from "../api/others-links.ts";
import { callerKey } from "../listeners/callers.ts";
import type { CreateOptions } from "../pods/lifecycle/starts.ts";
import type { PodRow } from "../pods/store/pod-row.ts";
import { done, json, nothing } from "./answers.ts";
import { readGo } from "./requests/go-json.ts";
import { idOf, type KnownPods } from "./known-pods.ts";
import { podInfoView } from "./pod-info.ts";
import { inHyperdsWords } from "./port-calls.ts";
import { podRequest } from "./requests/pod-request.ts";
import { type Asking, type Call, parameter, type Route, saysYes } from "./routes.ts";
import type { PodServices } from "./services/pod-services.ts";
import { type UserPod, userPod } from "./requests/user-pod.ts";

/** runv's code for a machine that has been ended (E_VM_SHUTDOWN), which hyperctl waits for. */
export const machineEnded = 2;

/** The life of pods. */
export const podCalls = (
  parts: ServiceParts,
  known: KnownPods,
  services: PodServices,
): readonly Route[] => [
  {
    method: "GET",
    path: "/pod/info",
    role: "viewer",
    answer: (call) => json(podInfoView(known.find(parameter(call, "podName")), parts, known)),
  },
  {
    method: "POST",
    path: "/pod/create",
    role: "operator",
    answer: (call) => createPod(call, parts, services),
  },
  ...lifeCalls(parts, known),
  {
    method: "POST",
    path: "/pod/labels",
    role: "operator",
    answer: (call) => labelPod(call, parts, known),
  },
];

const lifeCalls = (parts: ServiceParts, known: KnownPods): readonly Route[] => [
  {
    method: "POST",
    path: "/pod/start",
    role: "operator",
    async answer(call) {
      const row = known.find(parameter(call, "podId"));
      note(parts, call.context, `start ${row.name}`);
      await parts.pods.start(row.id, work(call.context));
      return done(idOf(row));
    },
  },
  {
    method: "POST",
    path: "/pod/stop",
    role: "operator",
    async answer(call) {
      if (parameter(call, "stopVm") === "no")
        throw new PodnetError("UNSUPPORTED", "podnet does not stop a pod without its machine", {
          field: "stopVm",
          hint: "Leave --onlypod out",
        });
      const row = known.find(parameter(call, "podId"));
      note(parts, call.context, `stop ${row.name}`);
      await parts.pods.stop(row.id, { force: false });
      return done(idOf(row), 200, machineEnded);
    },
  },
  {
    method: "POST",
    path: "/pod/pause",
    role: "operator",
    async answer(call) {
      const row = known.find(parameter(call, "podId"));
      note(parts, call.context, `pause ${row.name}`);
      await parts.pods.pause(row.id);
      return nothing;
    },
  },
  {
    method: "POST",
    path: "/pod/unpause",
    role: "operator",
    async answer(call) {
      const row = known.find(parameter(call, "podId"));
      note(parts, call.context, `resume ${row.name}`);
      await parts.pods.resume(row.id);
      return nothing;
    },
  },
  {
    method: "DELETE",
    path: "/pod",
    role: "operator",
    async answer(call) {
      const row = known.find(parameter(call, "podId"), (id) => `Can not find that Pod(${id})`);
      note(parts, call.context, `delete ${row.name}`);
      await parts.pods.delete(row.id, { force: false });
      return done(idOf(row));
    },
  },
];

async function createPod(call: Call, parts: ServiceParts, services: PodServices) {
  const type = call.header("content-type");
  if (!/^application\/json\s*(?:;|$)/i.test(type))
    throw new PodnetError(
      "INVALID_ARGUMENT",
      `Content-Type specified (${printable(type)}) must be 'application/json'`,
      { field: "Content-Type", hint: "Send the pod as JSON" },
    );
  if (saysYes(call, "remove"))
    throw new PodnetError("UNSUPPORTED", "podnet does not remove a pod by itself when it ends", {
      field: "remove",
      hint: "Remove it afterwards, as hyperctl of hyperd 1.1 does",
    });
  const pod = readGo(userPod, await call.body(), "The pod");
  return done(idOf(await create(pod, call.context, parts, services)), 201);
}

/** Creates a pod of hyperd's, with its services or not at all. */
export async function create(
  pod: UserPod,
  context: Asking,
  { pods, networks, config, log }: ServiceParts,
  services: PodServices,
): Promise<PodRow> {
  const asked = podRequest(
    pod,
    networks.list().map(({ name, bridge }) => ({ name, bridge })),
    { network: config.network.name },
  );
  services.check(pod.services);
  refuseOthersLinks(asked.spec.interfaces, context.values, (i) => `interfaces[${i}]`);
  note({ log }, context, `create ${asked.spec.name ?? ""}`);
  const row = await inHyperdsWords(() => pods.create(asked, work(context)));
  try {
    if (pod.services.length > 0) await services.add(row, pod.services, context);
  } catch (thrown) {
    await pods.delete(row.id, { force: true });
    throw thrown;
  }
  return row;
}

async function labelPod(call: Call, parts: ServiceParts, known: KnownPods) {
  const row = known.find(parameter(call, "podId"));
  const set = readGo(z.record(z.string(), z.string()), parameter(call, "labels"), "labels");
  await label(row, { set, override: saysYes(call, "override") }, call.context, parts);
  return done(idOf(row), 201);
}

/** Sets labels of a pod; those that it has are changed with `override` alone. */
export async function label(
  row: PodRow,
  { set, override }: { readonly set: Readonly<Record<string, string>>; readonly override: boolean },
  context: Asking,
  { pods, policies, log }: ServiceParts,
): Promise<void> {
  const [taken] = Object.keys(set).filter((key) => Object.hasOwn(row.spec.labels, key));
  if (taken !== undefined && !override)
    throw new PodnetError(
      "INVALID_ARGUMENT",
      `Can't update label ${printable(taken)} without override flag`,
      { field: "labels", hint: "Add override=true" },
    );
  const change = validateLabelsChange({ set, remove: [] });
  note({ log }, context, `label ${row.name}`);
  await pods.setLabels(row.id, change);
  await policies.labelled();
}

/** The caller's end undoes a create, and fails a start. */
export function work({ signal, values }: Asking): CreateOptions {
  const caller = values.get(callerKey);
  return {
    signal,
    progress: { started: () => {}, finished: () => {} },
    imagesOnly: caller?.role !== "admin",
    ...(caller === undefined ? {} : { admit: () => caller.create() }),
  };
}
