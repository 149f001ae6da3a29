import { create } from "@bufbuild/protobuf";
import {
  type ConsoleRequest,
  type ConsoleResponse,
  ConsoleResponseSchema,
} from "../../api/gen/podnet/v1/pod_service_pb.ts";
import { validatePodRef } from "../../api/validate-exec.ts";
import { PodnetError } from "../../core/errors.ts";
import type { ServiceParts } from "./context.ts";

/** What is kept of a console, then what follows. The guest's bytes travel as they are. */
export async function* streamConsole(
  { idOrName, noFollow, tailBytes }: ConsoleRequest,
  parts: ServiceParts,
  signal: AbortSignal,
): AsyncGenerator<ConsoleResponse> {
  const { vm } = parts.pods.withMachine(validatePodRef(idOrName));
  if (vm === undefined) {
    throw new PodnetError("WRONG_STATE", "The pod has no machine", {
      hint: `Start it: podnet start ${idOrName}`,
    });
  }
  const kept = vm.consoleTail();
  const tail = tailBytes === 0 ? kept : kept.subarray(Math.max(0, kept.length - tailBytes));
  if (noFollow) {
    if (tail.length > 0) yield response(tail);
    return;
  }
  // The machine's own stream begins with all that is kept.
  let skip = kept.length - tail.length;
  for await (const chunk of vm.console(signal)) {
    const data = chunk.subarray(Math.min(skip, chunk.length));
    skip -= chunk.length - data.length;
    if (data.length > 0) yield response(data);
  }
}

const response = (data: Uint8Array): ConsoleResponse =>
  create(ConsoleResponseSchema, { data: Uint8Array.from(data) });
