import * as z from "zod";
import { validateLabelsChange } from "../../api/validate/validate.ts";
import { PodnetError } from "../../core/errors.ts";
import { printable } from "../../core/names.ts";
import { note, type ServiceParts } from "../api/context.ts";
import { refuseOthersLinks, refuseProtectedLabels } from "../api/others-links.ts";
import type { PodRow } from "../pods/store/pod-row.ts";
import { done, json, nothing } from "./answers.ts";
import type { InnerContainers } from "./containers/inner-containers.ts";
import { writtenSources } from "./requests/written-sources.ts";
import type { InnerPod } from "./containers/inner-plan.ts";
import { mainOf } from "./requests/main-of.ts";
import { work } from "./work.ts";
import { readGo } from "./requests/go-json.ts";
import { type KnownPods } from "./known-pods.ts";
import { idOf } from "./pod-ids.ts";
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
  inner: InnerContainers,
): readonly Route[] => [
  {
    method: "GET",
    path: "/pod/info",
    parameters: ["podName"],
    role: "viewer",
    answer: (call) => json(podInfoView(known.find(parameter(call, "podName")), parts, known)),
  },
  {
    method: "POST",
    path: "/pod/create",
    parameters: ["remove"],
    role: "operator",
    answer: (call) => createPod(call, parts, services, inner),
  },
  ...lifeCalls(parts, known, inner),
  {
    method: "POST",
    path: "/pod/labels",
    parameters: ["podId", "labels", "override"],
    role: "operator",
    answer: (call) => labelPod(call, parts, known),
  },
];

const lifeCalls = (
  parts: ServiceParts,
  known: KnownPods,
  inner: InnerContainers,
): readonly Route[] => [
  {
    method: "POST",
    path: "/pod/start",
    parameters: ["podId"],
    role: "operator",
    async answer(call) {
      const row = known.find(parameter(call, "podId"));
      note(parts, call.context, `start ${row.name}`);
      await inner.startPod(row, work(call.context));
      return done(idOf(row));
    },
  },
  {
    method: "POST",
    path: "/pod/stop",
    parameters: ["podId", "stopVm"],
    role: "operator",
    async answer(call) {
      if (parameter(call, "stopVm") === "no")
        throw new PodnetError("UNSUPPORTED", "podnet does not stop a pod without its machine", {
          field: "stopVm",
          hint: "Leave --onlypod out",
        });
      const row = known.find(parameter(call, "podId"));
      note(parts, call.context, `stop ${row.name}`);
      await inner.stopAll(row, call.context.signal);
      await parts.pods.stop(row.id, { force: false });
      return done(idOf(row), 200, machineEnded);
    },
  },
  {
    method: "POST",
    path: "/pod/pause",
    parameters: ["podId"],
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
    parameters: ["podId"],
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
    parameters: ["podId"],
    role: "operator",
    async answer(call) {
      const row = known.find(parameter(call, "podId"), (id) => `Can not find that Pod(${id})`);
      note(parts, call.context, `delete ${row.name}`);
      await inner.stopAll(row, call.context.signal);
      await parts.pods.delete(row.id, { force: false });
      return done(idOf(row));
    },
  },
];

async function createPod(
  call: Call,
  parts: ServiceParts,
  services: PodServices,
  inner: InnerContainers,
) {
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
  return done(idOf(await create(pod, call.context, parts, services, inner)), 201);
}

/** Creates a pod of hyperd's, with its containers and services or not at all. */
export async function create(
  pod: UserPod,
  context: Asking,
  { pods, networks, config, log }: ServiceParts,
  services: PodServices,
  inner: InnerContainers,
): Promise<PodRow> {
  const asked = podRequest(
    pod,
    networks.list().map(({ name, bridge }) => ({ name, bridge })),
    { network: config.network.name },
  );
  services.check(pod.services);
  const isMain = mainOf(pod) !== undefined;
  const planned = (podId: string) =>
    isMain ? [] : inner.plan(pod.containers, innerPodOf(pod), podId);
  // What cannot be is refused before there is a machine.
  const shared = (asked.spec.shares ?? []).map(({ hostPath }) => hostPath);
  inner.checkVolumes(pod.volumes.filter(({ source }) => !shared.includes(source)));
  planned("");
  refuseProtectedLabels(Object.keys(asked.spec.labels), context.values, "labels");
  refuseOthersLinks(asked.spec.interfaces, context.values, (i) => `interfaces[${i}]`);
  note({ log }, context, `create ${asked.spec.name ?? ""}`);
  const row = await inHyperdsWords(() => pods.create(asked, work(context)));
  try {
    for (const each of planned(row.id)) await inner.create(row, each);
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
  refuseProtectedLabels(Object.keys(change.set), context.values, "labels");
  note({ log }, context, `label ${row.name}`);
  await pods.setLabels(row.id, change);
  await policies.labelled();
}

const innerPodOf = ({ files, volumes, containers, tty }: UserPod): InnerPod => ({
  files,
  volumes,
  shares: writtenSources({ volumes, containers }),
  tty,
});
