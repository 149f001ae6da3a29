import type { Span } from "../../api/gen/podnet/v1/pod_pb.ts";
import { milliseconds } from "./format.ts";

type Part = Pick<Span, "step" | "startMs" | "durationMs" | "detail">;

/** From the first step's beginning to the last one's end, milliseconds. */
export const wholeOf = (spans: readonly Part[]): number =>
  Math.max(0, ...spans.map(({ startMs, durationMs }) => startMs + durationMs));

const spoken = (spans: readonly Part[]): string =>
  `${milliseconds(wholeOf(spans))}: ${spans.map(({ step, durationMs }) => `${step} ${milliseconds(durationMs)}`).join(", ")}`;

const placed = ({ startMs, durationMs }: Part, scaleMs: number) => ({
  left: `${(100 * startMs) / scaleMs}%`,
  width: `max(2px, ${(100 * durationMs) / scaleMs}%)`,
});

/** The steps of bringing a pod up, each as a bar from its start to its end. */
export function Waterfall({ spans }: { spans: readonly Part[] }) {
  if (spans.length === 0) return <p class="muted">No steps are recorded</p>;
  const whole = Math.max(1, wholeOf(spans));
  return (
    <div class="waterfall" role="img" aria-label={`It took ${spoken(spans)}`}>
      {spans.map((span) => (
        <div key={`${span.step} ${span.startMs}`} class="step" title={span.detail}>
          <span class="name">{span.step}</span>
          <span class="track">
            <span class="piece" style={placed(span, whole)} />
          </span>
          <span class="time">{milliseconds(span.durationMs)}</span>
        </div>
      ))}
    </div>
  );
}

/** The steps on one line, one after the other; the longest stands out. */
export function Strip({ spans, scaleMs }: { spans: readonly Part[]; scaleMs: number }) {
  const longest = spans.toSorted((a, b) => b.durationMs - a.durationMs)[0];
  return (
    <span class="track" role="img" aria-label={`Steps: ${spoken(spans)}`}>
      {spans.map((span) => (
        <span
          key={`${span.step} ${span.startMs}`}
          class={`piece${span === longest ? " longest" : ""}`}
          style={placed(span, Math.max(1, scaleMs))}
          title={`${span.step} ${milliseconds(span.durationMs)} ${span.detail}`}
        />
      ))}
    </span>
  );
}
