import type { Span } from "../../api/gen/podnet/v1/pod_pb.ts";
import { milliseconds } from "./format.ts";

const [row, left, right] = [20, 130, 70];
const width = 560;

/** The steps of bringing a pod up, each as a bar from its start to its end. */
export function Waterfall({ spans }: { spans: readonly Span[] }) {
  if (spans.length === 0) return <p class="muted">No steps are recorded</p>;
  const whole = Math.max(...spans.map(({ startMs, durationMs }) => startMs + durationMs), 1);
  const scale = (width - left - right) / whole;
  return (
    <svg
      class="waterfall"
      viewBox={`0 0 ${width} ${spans.length * row}`}
      role="img"
      aria-label={`It took ${milliseconds(whole)}: ${spans.map(({ step, durationMs }) => `${step} ${milliseconds(durationMs)}`).join(", ")}`}
    >
      {spans.map(({ step, startMs, durationMs, detail }, i) => (
        <g key={`${step} ${startMs}`} transform={`translate(0 ${i * row})`}>
          <title>{detail}</title>
          <text x={left - 8} y={14} text-anchor="end">
            {step}
          </text>
          <rect
            x={left + startMs * scale}
            y={4}
            width={Math.max(1.5, durationMs * scale)}
            height={row - 8}
            rx={2}
          />
          <text x={width} y={14} text-anchor="end">
            {milliseconds(durationMs)}
          </text>
        </g>
      ))}
    </svg>
  );
}
