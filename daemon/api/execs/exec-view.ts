import { create } from "@bufbuild/protobuf";
import { toErrorInfo } from "../../../api/codes.ts";
import { type Exec as ExecView, ExecSchema } from "../../../api/gen/podnet/v1/pod_service_pb.ts";
import type { Exec } from "../../pods/execs/execs.ts";
import type { LivePod } from "../../pods/lifecycle/live-pod.ts";
import { time } from "../views.ts";

/** A program as the API shows it. */
export function execView(
  { id, spec, state, startedMs, output }: Exec,
  { plan }: LivePod,
): ExecView {
  const { user, group } = spec.user ?? {};
  return create(ExecSchema, {
    id,
    podId: plan.podId,
    podName: plan.name,
    args: [...spec.args],
    user: [user ?? "", ...(group === undefined ? [] : [group])].join(":"),
    workdir: spec.workdir,
    terminal: spec.terminal,
    detached: output !== undefined,
    state: state.kind,
    startedAt: time(startedMs),
    ...(state.kind === "running" ? {} : { finishedAt: time(state.finishedMs) }),
    ...(state.kind === "exited" ? { code: state.code } : {}),
    ...(state.kind === "failed" ? { error: toErrorInfo(state.error) } : {}),
    outputBytes: BigInt(output?.written ?? 0),
  });
}
