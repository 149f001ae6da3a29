import type { MessageInitShape } from "@bufbuild/protobuf";
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import type { MainProcessSchema } from "../../../api/gen/podnet/v1/pod_pb.ts";
import type { ProcessSchema } from "../../../api/gen/podnet/v1/pod_spec_pb.ts";
import type { ProcessSpec } from "../../../api/pod-spec.ts";
import type { ProcessPlan } from "../../pods/process/plan-process.ts";
import { exitCodeOf } from "../../pods/process/process-end.ts";
import type { ProcessRow } from "../../pods/store/process-rows.ts";

export const processSpecView = (spec: ProcessSpec): MessageInitShape<typeof ProcessSchema> => ({
  args: [...(spec.args ?? [])],
  entrypoint: [...(spec.entrypoint ?? [])],
  // Values may be secrets, which viewers of pods are not shown.
  env: Object.fromEntries(Object.keys(spec.env).map((key) => [key, "(not shown)"])),
  workdir: spec.workdir ?? "",
  user: spec.user ?? "",
  terminal: spec.terminal,
  stdin: spec.stdin,
  stopSignal: spec.stopSignal === undefined ? "" : String(spec.stopSignal),
  ...(spec.stopTimeoutMs === undefined ? {} : { stopTimeoutMs: spec.stopTimeoutMs }),
});

/** The main process as decided, with what is known of its latest start. */
export function processView(
  plan: ProcessPlan,
  row: ProcessRow | undefined,
): MessageInitShape<typeof MainProcessSchema> {
  const { end, endedMs } = row ?? {};
  return {
    args: [...plan.args],
    user: plan.user ?? "",
    workdir: plan.workdir,
    terminal: plan.terminal,
    imageDigest: plan.digest ?? "",
    ...(row === undefined
      ? {}
      : {
          startedAt: timestampFromMs(row.startedMs),
          restarts: row.restarts,
          restarting: row.nextMs !== undefined,
        }),
    ...(endedMs === undefined
      ? {}
      : { endedAt: timestampFromMs(endedMs), exitCode: exitCodeOf(end) }),
    signal: end !== undefined && "signal" in end ? end.signal : 0,
  };
}
