import type { MessageInitShape } from "@bufbuild/protobuf";
import type { VerifyPodResponseSchema } from "../../api/gen/podnet/v1/pod_service_pb.ts";
import { PodnetError } from "../../core/errors.ts";
import type { LivePod } from "../pod/live-pod.ts";

export function verifyPod(_live: LivePod, _signal: AbortSignal): Promise<MessageInitShape<typeof VerifyPodResponseSchema>> {
  throw new PodnetError("UNSUPPORTED", "not yet");
}
