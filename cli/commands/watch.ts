import { timestampDate } from "@bufbuild/protobuf/wkt";
import type { Command } from "commander";
import {
  type WatchPodsResponse,
  WatchPodsResponse_Kind as Kind,
  WatchPodsResponseSchema,
} from "../../api/gen/podnet/v1/pod_service_pb.ts";
import { addOutput, type Context, type OutputOptions, withPodnet } from "../context.ts";
import { document, printDocument, toPlain } from "../output.ts";
import { addressesOf, stateName } from "../pod-view.ts";
import { usage } from "../report.ts";
import { duration, harmless } from "../text.ts";

interface Options extends OutputOptions {
  readonly after?: string;
}

const words: Readonly<Record<Kind, string>> = {
  [Kind.UNSPECIFIED]: "event",
  [Kind.SNAPSHOT]: "is",
  [Kind.SYNCED]: "synced",
  [Kind.CREATED]: "created",
  [Kind.UPDATED]: "updated",
  [Kind.STEP]: "step",
  [Kind.DELETED]: "deleted",
  [Kind.DRIFT]: "drift",
  [Kind.ATTACHMENT]: "cni",
};

export function addWatch(program: Command, context: Context): void {
  addOutput(program.command("watch").description("show pods and every change, until interrupted"))
    .argument("[pod]", "name or id; default all pods")
    .option("--after <cursor>", "go on after this event instead of beginning with what there is")
    .action(async (pod: string | undefined, options: Options) => {
      const after = options.after;
      if (after !== undefined && !/^[0-9]{1,19}$/.test(after)) {
        throw usage("--after is not a cursor", "Give the cursor of an event, as -o json shows it");
      }
      const request = {
        idOrName: pod ?? "",
        ...(after === undefined ? {} : { after: BigInt(after) }),
      };
      await withPodnet(context, options, async (podnet, signal) => {
        for await (const event of podnet.pods.watch(request, { signal })) {
          await show(context, options, event);
        }
      });
    });
}

async function show(
  { io }: Context,
  { output }: OutputOptions,
  event: WatchPodsResponse,
): Promise<void> {
  if (output === "table") {
    if (event.kind !== Kind.SYNCED) io.stdout.write(`${line(event)}\n`);
    return;
  }
  const { kind, ...body } = toPlain(WatchPodsResponseSchema, event);
  await printDocument(io, output, document("Event", { ...body, type: kind ?? "" }), true);
}

function line(event: WatchPodsResponse): string {
  const { pod, span, error } = event;
  const time =
    event.time === undefined ? "" : timestampDate(event.time).toISOString().slice(11, 23);
  return [
    time,
    (pod?.name ?? "").padEnd(16),
    (words[event.kind] ?? "event").padEnd(8),
    pod === undefined ? "" : stateName(pod.state).padEnd(8),
    span === undefined ? "" : `${span.step} ${duration(span.durationMs)}`,
    span === undefined && pod !== undefined ? addressesOf(pod).join(" ") : "",
    harmless(event.text),
    error === undefined ? "" : `${error.code}: ${harmless(error.message)}`,
  ]
    .filter((part) => part !== "")
    .join("  ")
    .trimEnd();
}
