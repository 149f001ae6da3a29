import type { Command } from "commander";
import { type Plan, PlanSchema, type Pod, PodSchema } from "../api/gen/podnet/v1/pod_pb.ts";
import type { PodSpec } from "../api/gen/podnet/v1/pod_spec_pb.ts";
import type { OutputOptions } from "./context.ts";
import type { Io } from "./io.ts";
import { document, printDocument, toPlain } from "./output.ts";
import { parseDuration } from "./parse.ts";
import { planText } from "./views/plan-view.ts";
import { FlagWriter, type GivenFlags } from "./flags/given.ts";
import { readPodFile } from "./pod-file.ts";
import { podLine } from "./views/pod-view.ts";
import { type SpecFlags, specFromFlags } from "./flags/spec-flags.ts";

/** Flags of every request for a pod, including attached VMs. */
export interface RequestFlags extends SpecFlags, OutputOptions {
  readonly file?: string;
  readonly plan?: boolean;
  readonly quiet?: boolean;
  readonly requestId?: string;
  readonly timeout?: string;
}

/** Common parts of every request for a pod. */
export interface PodRequest {
  readonly spec: PodSpec;
  readonly requestId: string;
  readonly planOnly: boolean;
  readonly timeoutMs: number;
}

export function addRequestFlags(command: Command): Command {
  return command
    .option("-f, --file <path>", "pod spec in YAML or JSON; - for standard input")
    .option("--plan", "show what would be done, and do nothing")
    .option("-q, --quiet", "print only the pod's id")
    .option("--timeout <duration>", "give up and undo after this long, e.g. 30s")
    .option("--request-id <id>", "makes a retry return the same pod instead of another");
}

/** Reads the file, if one is named, and what the flags change of it. Throws `INVALID_ARGUMENT`. */
export async function requestFrom(options: RequestFlags, given: GivenFlags): Promise<PodRequest> {
  const { file, plan } = options;
  const fromFile = file === undefined ? undefined : await readPodFile(file);
  const spec = await specFromFlags(options, fromFile, given);
  const request = { spec, requestId: "", planOnly: plan === true, timeoutMs: 0 };
  const flags = new FlagWriter(options, given);
  flags.put("requestId", "request_id", (id) => {
    request.requestId = id;
  });
  flags.put("timeout", "timeout_ms", (text) => {
    request.timeoutMs = parseDuration("--timeout", text);
  });
  return request;
}

/** Shows the pod that was made, or the plan of it. */
export async function printMade(
  io: Io,
  { output, quiet }: Pick<RequestFlags, "output" | "quiet">,
  made: Pod | Plan,
): Promise<void> {
  const isPlan = made.$typeName === "podnet.v1.Plan";
  if (output !== "table") {
    const body = isPlan ? toPlain(PlanSchema, made) : toPlain(PodSchema, made);
    await printDocument(io, output, document(isPlan ? "Plan" : "Pod", body));
  } else if (isPlan) io.stdout.write(planText(io.stdout, made));
  else io.stdout.write(`${quiet === true ? made.id : podLine(io.stdout, made)}\n`);
}
