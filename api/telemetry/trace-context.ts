import { randomBytes } from "node:crypto";

/** A place in a trace: W3C Trace Context, https://www.w3.org/TR/trace-context/. */
export interface TraceContext {
  /** 32 hexadecimal digits, not all zero. */
  readonly traceId: string;
  /** The span that goes on with what follows: 16 hexadecimal digits, not all zero. */
  readonly spanId: string;
  /** Whoever began the trace wants its spans. */
  readonly sampled: boolean;
}

/** The header, and the variable of the environment (in capitals), that hold a place in a trace. */
export const traceHeader = "traceparent";

/** `VERSION-TRACE-SPAN-FLAGS`; later versions may have more behind a further hyphen. */
const form = /^([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?$/;

/**
 * Reads a `traceparent`. Undefined for everything that is none: the standard asks to begin a new
 * trace then, and not to fail.
 */
export function parseTraceparent(text: string | null | undefined): TraceContext | undefined {
  const [, version, traceId = "", spanId = "", flags = "", more] = form.exec(text ?? "") ?? [];
  if (version === undefined || version === "ff") return undefined;
  if (version === "00" && more !== undefined) return undefined;
  if (/^0+$/.test(traceId) || /^0+$/.test(spanId)) return undefined;
  return { traceId, spanId, sampled: (Number.parseInt(flags, 16) & 1) === 1 };
}

export const formatTraceparent = ({ traceId, spanId, sampled }: TraceContext): string =>
  `00-${traceId}-${spanId}-${sampled ? "01" : "00"}`;

const randomId = (bytes: number): string => {
  const id = randomBytes(bytes).toString("hex");
  // One in 2^64 at the most often.
  return /^0+$/.test(id) ? randomId(bytes) : id;
};

/** A new span within the trace of `parent`, or of a new trace. */
export const childOf = (parent: TraceContext | undefined): TraceContext => ({
  traceId: parent?.traceId ?? randomId(16),
  spanId: randomId(8),
  sampled: parent?.sampled ?? true,
});
