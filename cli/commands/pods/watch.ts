import { timestampDate } from "@bufbuild/protobuf/wkt";
import type { Command } from "commander";
import { PodState } from "../../../api/gen/podnet/v1/pod_pb.ts";
import {
  type WatchPodsResponse,
  WatchPodsResponse_Kind as Kind,
  WatchPodsResponseSchema,
} from "../../../api/gen/podnet/v1/pod_service_pb.ts";
import { addOutput, type Context, type OutputOptions, withPodnet } from "../../context.ts";
import { document, printDocument, toPlain } from "../../output.ts";
import { addressesOf, stateName } from "../../views/pod-view.ts";
import { usage } from "../../usage.ts";
import { duration, harmless } from "../../views/text.ts";

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
  [Kind.GUARD]: "guard",
  [Kind.DENIAL]: "denied",
  [Kind.SERVICE]: "service",
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

/** One line: time, pod, event and state in columns, then what happened. */
function line(event: WatchPodsResponse): string {
  const { pod, error } = event;
  const time =
    event.time === undefined ? "" : timestampDate(event.time).toISOString().slice(11, 23);
  const state = pod === undefined || pod.state === PodState.UNSPECIFIED ? "" : stateName(pod.state);
  const columns = [
    time.padEnd(12),
    (pod?.name ?? "").padEnd(16),
    (words[event.kind] ?? "event").padEnd(8),
    state.padEnd(8),
  ];
  const details = [
    ...whatHappened(event, state),
    error === undefined ? "" : `${error.code}: ${harmless(error.message)}`,
  ];
  return [...columns, ...details.filter((part) => part !== "")].join("  ").trimEnd();
}

/**
 * A step with its time; for any other event the pod's addresses, and its text where that says more
 * than the state.
 */
function whatHappened({ pod, span, text }: WatchPodsResponse, state: string): string[] {
  if (span !== undefined) return [`${harmless(span.step)} ${duration(span.durationMs)}`];
  const addresses = pod === undefined ? "" : addressesOf(pod).join(" ");
  return [addresses, text === state ? "" : harmless(text)];
}
