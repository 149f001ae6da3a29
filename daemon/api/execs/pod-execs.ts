import { create } from "@bufbuild/protobuf";
import type { ServiceImpl } from "@connectrpc/connect";
import {
  type FollowExecRequest,
  type FollowExecResponse,
  FollowExecResponseSchema,
  type PodService,
} from "../../../api/gen/podnet/v1/pod_service_pb.ts";
import { invalid } from "../../../api/fields.ts";
import {
  validateExec,
  validateExecId,
  validatePodRef,
  validateSignal,
} from "../../../api/validate/exec.ts";
import { abortable } from "../../../core/aborting.ts";
import { PodnetError } from "../../../core/errors.ts";
import type { Exec } from "../../pods/execs/execs.ts";
import { type LivePod, requireGuest } from "../../pods/lifecycle/live-pod.ts";
import type { Pods } from "../../pods/pods.ts";
import { note, type ServiceParts } from "../context.ts";
import { requireAgent, streamExec } from "./exec-stream.ts";
import { execView } from "./exec-view.ts";

type Methods = Pick<
  ServiceImpl<typeof PodService>,
  "exec" | "startExec" | "listExecs" | "getExec" | "waitExec" | "signalExec" | "followExec"
>;

/** Programs in guests: what starts, shows and ends them. */
export function podExecs(parts: Pick<ServiceParts, "pods" | "log">): Methods {
  const { pods } = parts;
  return {
    exec: (requests, context) => streamExec(requests, parts, context),

    async startExec({ start }, context) {
      if (start === undefined) {
        throw invalid(
          "start",
          "No program is named",
          "Give the pod, the program and its arguments",
        );
      }
      const spec = validateExec(start);
      const live = pods.running(validatePodRef(start.idOrName));
      requireAgent(live);
      note(parts, context, `exec ${live.plan.name}`);
      const exec = await live.execs.start(requireGuest(live), spec, context.signal);
      return { exec: execView(exec, live) };
    },

    listExecs({ idOrName }) {
      const held = idOrName === "" ? pods.held() : heldOf(pods, validatePodRef(idOrName));
      return { execs: held.flatMap((live) => live.execs.list().map((e) => execView(e, live))) };
    },

    getExec({ execId }) {
      const { exec, live } = find(pods, execId);
      return { exec: execView(exec, live) };
    },

    async waitExec({ execId }, { signal }) {
      const { exec, live } = find(pods, execId);
      await abortable(exec.over, signal, "Waiting for the program");
      return { exec: execView(exec, live) };
    },

    async signalExec({ execId, signal }, context) {
      const number = validateSignal(signal);
      const { exec } = find(pods, execId);
      if (exec.state.kind !== "running") {
        throw new PodnetError("WRONG_STATE", "The program has ended already", {
          hint: `See how: podnet execs get ${exec.id}`,
        });
      }
      note(parts, context, `signal ${number} to exec ${exec.id}`);
      await exec.signal(number);
      return {};
    },

    followExec: (request, { signal }) => followExec(request, pods, signal),
  };
}

/** What podnetd holds of a pod; none of one without a machine. Throws `POD_NOT_FOUND`. */
function heldOf(pods: Pods, idOrName: string): LivePod[] {
  const live = pods.live(pods.find(idOrName).id);
  return live === undefined ? [] : [live];
}

function find(pods: Pods, text: string): { readonly exec: Exec; readonly live: LivePod } {
  const id = validateExecId(text);
  for (const live of pods.held()) {
    const exec = live.execs.get(id);
    if (exec !== undefined) return { exec, live };
  }
  throw new PodnetError("EXEC_NOT_FOUND", `No program has the id "${id}"`, {
    field: "exec_id",
    hint: "See podnet execs list; ids end with the pod's machine, and with podnetd",
  });
}

async function* followExec(
  { execId, noFollow }: FollowExecRequest,
  pods: Pods,
  signal: AbortSignal,
): AsyncGenerator<FollowExecResponse> {
  const { exec, live } = find(pods, execId);
  if (exec.output === undefined) {
    throw new PodnetError(
      "UNSUPPORTED",
      "The program's output goes to the caller that started it",
      {
        hint: "Start it with podnet exec --detach to follow it from elsewhere",
      },
    );
  }
  for await (const part of exec.output.read({ follow: !noFollow, signal })) {
    const output =
      part.kind === "skipped"
        ? ({ case: "skipped", value: BigInt(part.bytes) } as const)
        : // The codec copies it at once.
          { case: part.kind, value: part.data as Uint8Array<ArrayBuffer> };
    yield create(FollowExecResponseSchema, { output });
  }
  if (signal.aborted || exec.state.kind === "running") return;
  const value = execView(exec, live);
  yield create(FollowExecResponseSchema, { output: { case: "exec", value } });
}
