import { version } from "../version.ts";
import type { TraceContext } from "./trace-context.ts";

export type AttributeValue = string | number | boolean;

/** One piece of work with its time, as OpenTelemetry means it. */
export interface FinishedSpan {
  readonly context: TraceContext;
  /** The span that it is a part of; undefined where a trace begins. */
  readonly parentId: string | undefined;
  readonly name: string;
  readonly kind: keyof typeof kinds;
  /** Milliseconds since 1970, with fractions. */
  readonly startMs: number;
  readonly endMs: number;
  readonly attributes: Readonly<Record<string, AttributeValue>>;
  /** Why it failed; undefined when it did not. */
  readonly error: string | undefined;
}

/** `SpanKind` of opentelemetry-proto. */
const kinds = { internal: 1, server: 2, client: 3 } as const;
/** `STATUS_CODE_ERROR`. */
const failed = 2;

/**
 * The body of a request to a collector: an `ExportTraceServiceRequest` in OTLP's JSON, in which ids
 * are hexadecimal and 64-bit numbers are strings (opentelemetry.io/docs/specs/otlp, "JSON Protobuf
 * Encoding"). `service` is the program that the spans are of.
 */
export function otlpBody(service: string, host: string, spans: readonly FinishedSpan[]): string {
  return JSON.stringify({
    resourceSpans: [
      {
        resource: {
          attributes: attributesOf({
            "service.name": service,
            "service.version": version,
            "host.name": host,
          }),
        },
        scopeSpans: [{ scope: { name: "podnet", version }, spans: spans.map(spanOf) }],
      },
    ],
  });
}

const spanOf = ({
  context,
  parentId,
  name,
  kind,
  startMs,
  endMs,
  attributes,
  error,
}: FinishedSpan) => ({
  traceId: context.traceId,
  spanId: context.spanId,
  ...(parentId === undefined ? {} : { parentSpanId: parentId }),
  name: name.toWellFormed(),
  kind: kinds[kind],
  startTimeUnixNano: nanoseconds(startMs),
  endTimeUnixNano: nanoseconds(endMs),
  attributes: attributesOf(attributes),
  status: error === undefined ? {} : { code: failed, message: error.toWellFormed() },
});

/** Microseconds are as exact as a double is for times of today. */
const nanoseconds = (ms: number): string => String(BigInt(Math.round(ms * 1000)) * 1000n);

const attributesOf = (attributes: Readonly<Record<string, AttributeValue>>) =>
  Object.entries(attributes).map(([key, value]) => ({ key, value: valueOf(value) }));

/** (With half of a surrogate pair, as a cut text may end with, a collector refuses all spans.) */
function valueOf(value: AttributeValue) {
  if (typeof value === "string") return { stringValue: value.toWellFormed() };
  if (typeof value === "boolean") return { boolValue: value };
  return Number.isSafeInteger(value) ? { intValue: String(value) } : { doubleValue: value };
}
