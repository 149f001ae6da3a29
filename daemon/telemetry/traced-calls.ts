import { isMessage, type Message } from "@bufbuild/protobuf";
import type { Interceptor } from "@connectrpc/connect";
import { type Pod, PodSchema } from "../../api/gen/podnet/v1/pod_pb.ts";
import type { Clock } from "../../core/clock.ts";
import { traceHeader } from "../../api/telemetry/trace-context.ts";
import { CallSpan, callSpanKey } from "./call-span.ts";
import type { Exporter } from "./exporter.ts";

/**
 * Makes a span of each call of podnet's own services, from its arrival to the end of its answer.
 * Health checks are no work.
 */
export const tracedCalls =
  (exporter: Pick<Exporter, "add">, clock: Clock): Interceptor =>
  (next) =>
  async (request) => {
    if (!request.service.typeName.startsWith("podnet.")) return next(request);
    const call = { service: request.service.typeName, method: request.method.name };
    const span = new CallSpan(call, request.header.get(traceHeader), {
      clock,
      add: (finished) => exporter.add(finished),
    });
    request.contextValues.set(callSpanKey, span);
    try {
      const response = await next(request);
      if (!response.stream) {
        const pod = podOf(response.message);
        if (pod !== undefined) span.ofPod(pod);
        span.end();
        return response;
      }
      return { ...response, message: followed(response.message, span) };
    } catch (thrown) {
      span.end(thrown);
      throw thrown;
    }
  };

/** The pod that an answer shows: most calls about one do, and the last message of CreateStream. */
function podOf(message: unknown): Pod | undefined {
  const { pod, event } = message as {
    readonly pod?: Message;
    readonly event?: { readonly value?: Message };
  };
  return [pod, event?.value].find((each) => isMessage(each, PodSchema));
}

/** Ends the span when the last message was read, or the caller has left. */
async function* followed<T>(messages: AsyncIterable<T>, span: CallSpan): AsyncGenerator<T> {
  let failure: unknown;
  try {
    for await (const message of messages) {
      const pod = podOf(message);
      if (pod !== undefined) span.ofPod(pod);
      yield message;
    }
  } catch (thrown) {
    failure = thrown;
    throw thrown;
  } finally {
    span.end(failure);
  }
}
