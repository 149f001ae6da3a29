import type { FinishedSpan } from "../api/telemetry/otlp.ts";
import { childOf, formatTraceparent, parseTraceparent } from "../api/telemetry/trace-context.ts";

type Environment = Readonly<Record<string, string | undefined>>;

/** Longest that a command waits for the collector at its end, milliseconds. */
const sendMs = 1000;

/** A command as a span: a part of the caller's trace, or the beginning of one. */
export interface CommandTrace {
  /** What podnetd is to be sent, so that its spans are parts of the command's. */
  readonly traceparent: string;
  /** Sends the command's span, if there is a collector. Never rejects. */
  end(command: string, exitCode: number): Promise<void>;
}

/**
 * What OpenTelemetry's variables ask for: `OTEL_EXPORTER_OTLP_ENDPOINT` names a collector, and
 * `TRACEPARENT` the trace that the caller is in. Undefined when neither is set.
 */
export function commandTrace(env: Environment): CommandTrace | undefined {
  const { OTEL_EXPORTER_OTLP_ENDPOINT: endpoint = "", TRACEPARENT: traceparent } = env;
  const parent = parseTraceparent(traceparent);
  if (endpoint === "" && parent === undefined) return undefined;
  // Without a collector the command has no span, and podnetd's are parts of the caller's.
  if (endpoint === "" && parent !== undefined)
    return { traceparent: formatTraceparent(parent), end: async () => {} };
  const context = childOf(parent);
  const startMs = Date.now();
  const began = performance.now();
  return {
    traceparent: formatTraceparent(context),
    async end(command, exitCode) {
      if (!context.sampled) return;
      const span: FinishedSpan = {
        context,
        parentId: parent?.spanId,
        name: command,
        kind: "client",
        startMs,
        endMs: startMs + (performance.now() - began),
        attributes: { "process.exit.code": exitCode },
        error: exitCode === 0 ? undefined : `exit code ${exitCode}`,
      };
      await send(endpoint, span).catch(() => {});
    },
  };
}

/** Loaded only now: most runs of the command send nothing. */
async function send(endpoint: string, span: FinishedSpan): Promise<void> {
  const [{ hostname }, { otlpBody }, { tracesUrl }, { sendSpans }] = await Promise.all([
    import("node:os"),
    import("../api/telemetry/otlp.ts"),
    import("../api/telemetry/collector-url.ts"),
    import("../api/telemetry/send-spans.ts"),
  ]);
  const body = otlpBody("podnet", hostname(), [span]);
  await sendSpans(tracesUrl(endpoint), body, AbortSignal.timeout(sendMs));
}
