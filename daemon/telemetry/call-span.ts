import { createContextKey } from "@connectrpc/connect";
import { childOf, parseTraceparent, type TraceContext } from "../../api/telemetry/trace-context.ts";
import type { AttributeValue, FinishedSpan } from "../../api/telemetry/otlp.ts";
import type { Clock } from "../../core/clock.ts";
import { fromConnectError } from "../../api/codes.ts";
import type { Span } from "../events/span.ts";

/** Longest text of a span, characters: callers choose some of them. */
const longestText = 256;

/** Steps of one call at most. */
const mostSteps = 200;

/** A call of the API as a span, whose steps are spans within it. */
export class CallSpan {
  readonly #context: TraceContext;
  readonly #parentId: string | undefined;
  readonly #name: string;
  readonly #startMs: number;
  readonly #began: number;
  readonly #clock: Clock;
  readonly #attributes: Record<string, AttributeValue>;
  readonly #export: (span: FinishedSpan) => void;
  #steps = 0;

  /** `traceparent` is the caller's, if it sent one. */
  constructor(
    call: { readonly service: string; readonly method: string },
    traceparent: string | null,
    { clock, add }: { readonly clock: Clock; readonly add: (span: FinishedSpan) => void },
  ) {
    const parent = parseTraceparent(traceparent);
    this.#context = childOf(parent);
    this.#parentId = parent?.spanId;
    this.#name = `${call.service}/${call.method}`;
    this.#attributes = {
      "rpc.system": "connect_rpc",
      "rpc.service": call.service,
      "rpc.method": call.method,
    };
    this.#clock = clock;
    this.#startMs = clock.now();
    this.#began = clock.monotonic();
    this.#export = add;
  }

  /** Adds a finished step of the call. Its times count from the call's arrival. */
  step({ step, startMs, durationMs, detail }: Span): void {
    if (!this.#context.sampled || this.#steps >= mostSteps) return;
    this.#steps++;
    const begin = this.#startMs + startMs;
    this.#export({
      context: childOf(this.#context),
      parentId: this.#context.spanId,
      name: step,
      kind: "internal",
      startMs: begin,
      endMs: begin + durationMs,
      attributes: detail === "" ? {} : { "podnet.detail": detail.slice(0, longestText) },
      error: undefined,
    });
  }

  /** Says which pod the call was about. */
  ofPod({ id, name }: { readonly id: string; readonly name: string }): void {
    this.#attributes["podnet.pod.id"] = id;
    this.#attributes["podnet.pod.name"] = name;
  }

  /** The call is answered, or has failed. */
  end(thrown?: unknown): void {
    if (!this.#context.sampled) return;
    const error = thrown === undefined ? undefined : fromConnectError(thrown);
    if (error !== undefined) this.#attributes["error.type"] = error.code;
    this.#export({
      context: this.#context,
      parentId: this.#parentId,
      name: this.#name,
      kind: "server",
      startMs: this.#startMs,
      endMs: this.#startMs + (this.#clock.monotonic() - this.#began),
      attributes: this.#attributes,
      error: error?.message.slice(0, longestText),
    });
  }
}

/** Where handlers find their call's span; undefined while spans are not wanted. */
export const callSpanKey = createContextKey<CallSpan | undefined>(undefined, {
  description: "the call's span",
});
