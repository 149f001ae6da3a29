import { create } from "@bufbuild/protobuf";
import type { HandlerContext, ServiceImpl } from "@connectrpc/connect";
import {
  type CaptureRequest,
  type CaptureResponse,
  CaptureResponseSchema,
  type PodService,
} from "../../api/gen/podnet/v1/pod_service_pb.ts";
import { type CaptureSpec, validateCapture } from "../../api/validate/traffic.ts";
import { isPodnetError, PodnetError } from "../../core/errors.ts";
import type { LivePod } from "../pods/lifecycle/live-pod.ts";
import { type NicInterface, staying, withNic } from "../pods/store/pod-plan.ts";
import { capture } from "../traffic/capture.ts";
import { callerKey } from "../listeners/callers.ts";
import { note, type ServiceParts } from "./context.ts";
import { streamStats } from "./stats-stream.ts";

type Methods = Pick<ServiceImpl<typeof PodService>, "stats" | "capture">;

/** The traffic of pods' interfaces: counters and captures. */
export const podTraffic = (parts: ServiceParts): Methods => ({
  stats: (request, { signal }) => streamStats(request, parts, signal),
  capture: (request, context) => streamCapture(request, parts, context),
});

async function* streamCapture(
  request: CaptureRequest,
  parts: ServiceParts,
  context: HandlerContext,
): AsyncGenerator<CaptureResponse> {
  const asked = validateCapture(request);
  note(parts, context, `capture ${asked.pod}`);
  const live = parts.pods.withMachine(asked.pod);
  const { nic, guestName, cni } = interfaceOf(live, asked);
  using _place = context.values.get(callerKey)?.capture();
  const { snapBytes, maxPackets } = asked;
  try {
    const place = { link: nic.tap, ...(cni && { netns: cni.netns }) };
    const captured = capture({ ...place, snapBytes, maxPackets }, context.signal);
    for await (const { data, lost } of captured)
      yield create(CaptureResponseSchema, { data, lost: BigInt(lost) });
  } catch (thrown) {
    throw isPodnetError(thrown, "SYSCALL_FAILED") && thrown.details["errno"] === "ENODEV"
      ? notPlugged(live, guestName, thrown)
      : thrown;
  }
}

/**
 * The selected interface. Throws `INVALID_ARGUMENT` when the pod does not have it, `WRONG_STATE`
 * when it has no NIC now.
 */
function interfaceOf(live: LivePod, { guestName }: CaptureSpec): NicInterface {
  const nics = withNic(staying(live.plan.interfaces));
  const found = guestName === undefined ? nics[0] : nics.find((nic) => nic.guestName === guestName);
  if (found === undefined) {
    const { name } = live.plan;
    const what = guestName === undefined ? "with a NIC" : `"${guestName}" with a NIC`;
    throw new PodnetError("INVALID_ARGUMENT", `Pod "${name}" has no interface ${what}`, {
      field: "guest_name",
      hint: `Give one of its interfaces: ${nics.map((nic) => nic.guestName).join(", ") || "it has none"}`,
    });
  }
  if (!live.plugged.has(found.position)) throw notPlugged(live, found.guestName);
  return found;
}

const notPlugged = ({ plan }: LivePod, guestName: string, cause?: unknown): PodnetError =>
  new PodnetError(
    "WRONG_STATE",
    `The NIC of "${guestName}" is not plugged into pod "${plan.name}"`,
    {
      hint: "The guest ejected it: remove the interface and add it again, or restart the pod",
      cause,
    },
  );
