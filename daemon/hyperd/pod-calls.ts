import { z } from "zod";
import { validateLabelsChange } from "../../api/validate/validate.ts";
import { PodnetError } from "../../core/errors.ts";
import { printable } from "../../core/names.ts";
import { note, type ServiceParts } from "../api/context.ts";
import { refuseOthersLinks } from "../api/others-links.ts";
import { callerKey } from "../listeners/callers.ts";
import type { CreateOptions } from "../pods/lifecycle/starts.ts";
import { done, nothing } from "./answers.ts";
import { readGo } from "./requests/go-json.ts";
import { idOf, type KnownPods } from "./known-pods.ts";
import { podInfo } from "./pod-info.ts";
import { inHyperdsWords } from "./port-calls.ts";
import { podRequest } from "./requests/pod-request.ts";
import { type Call, parameter, type Route, saysYes } from "./routes.ts";
import { userPod } from "./requests/user-pod.ts";

/** runv's code for a machine that has been ended (E_VM_SHUTDOWN), which hyperctl waits for. */
const machineEnded = 2;

/** The life of pods. */
export const podCalls = (parts: ServiceParts, known: KnownPods): readonly Route[] => [
  {
    method: "GET",
    path: "/pod/info",
    role: "viewer",
    answer: (call) => podInfo(known.find(parameter(call, "podName")), parts, known),
  },
  {
    method: "POST",
    path: "/pod/create",
    role: "operator",
    answer: (call) => createPod(call, parts),
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
      await parts.pods.start(row.id, work(call));
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

async function createPod(call: Call, parts: ServiceParts) {
  const { pods, networks, config } = parts;
  const { values } = call.context;
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
  const asked = podRequest(
    readGo(userPod, await call.body(), "The pod"),
    networks.list().map(({ name, bridge }) => ({ name, bridge })),
    { network: config.network.name },
  );
  refuseOthersLinks(asked.spec.interfaces, values, (i) => `interfaces[${i}]`);
  note(parts, call.context, `create ${asked.spec.name ?? ""}`);
  const row = await inHyperdsWords(() => pods.create(asked, work(call)));
  return done(idOf(row), 201);
}

async function labelPod(call: Call, parts: ServiceParts, known: KnownPods) {
  const { pods, policies } = parts;
  const row = known.find(parameter(call, "podId"));
  const set = readGo(z.record(z.string(), z.string()), parameter(call, "labels"), "labels");
  const [taken] = Object.keys(set).filter((key) => Object.hasOwn(row.spec.labels, key));
  if (taken !== undefined && !saysYes(call, "override"))
    throw new PodnetError(
      "INVALID_ARGUMENT",
      `Can't update label ${printable(taken)} without override flag`,
      { field: "labels", hint: "Add override=true" },
    );
  const change = validateLabelsChange({ set, remove: [] });
  note(parts, call.context, `label ${row.name}`);
  await pods.setLabels(row.id, change);
  await policies.labelled();
  return done(idOf(row), 201);
}

/** The caller's end undoes a create, and fails a start. */
export function work({ context: { signal, values } }: Call): CreateOptions {
  const caller = values.get(callerKey);
  return {
    signal,
    progress: { started: () => {}, finished: () => {} },
    imagesOnly: caller?.role !== "admin",
    ...(caller === undefined ? {} : { admit: () => caller.create() }),
  };
}
