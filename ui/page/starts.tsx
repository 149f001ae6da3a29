import { clock, milliseconds } from "./format.ts";
import type { Start, State } from "./model.ts";
import { Strip, wholeOf } from "./waterfall.tsx";

const longestStep = ({ spans }: Start): string => {
  const [longest] = spans.toSorted((a, b) => b.durationMs - a.durationMs);
  return longest === undefined ? "" : `${longest.step} ${milliseconds(longest.durationMs)}`;
};

/** Every create and start that is remembered, newest first, on one scale of time. */
export function Starts({ state, choose }: { state: State; choose: (id: string) => void }) {
  const { starts, pods } = state;
  if (starts.length === 0) return <p class="muted">No pod has been created or started yet</p>;
  const scaleMs = Math.max(...starts.map(({ spans }) => wholeOf(spans)));
  return (
    <div class="card scroll" tabIndex={0} role="region" aria-label="Starts of pods">
      <table class="starts">
        <thead>
          <tr>
            {["Begun", "Pod", "Took", "Steps", "Longest step"].map((title) => (
              <th key={title} scope="col">
                {title}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {starts.map((start) => (
            <tr key={start.key}>
              <td class="number">{clock(start.timeMs)}</td>
              <th scope="row">
                {pods.has(start.id) ? (
                  <button type="button" class="link" onClick={() => choose(start.id)}>
                    {start.name}
                  </button>
                ) : (
                  <>
                    {start.name} <span class="muted">deleted</span>
                  </>
                )}
              </th>
              <td class="number">
                {start.error === "" ? (
                  start.done ? milliseconds(wholeOf(start.spans)) : "…"
                ) : (
                  <span class="badge bad" title={start.error}>
                    failed
                  </span>
                )}
              </td>
              <td class="wide">
                <Strip spans={start.spans} scaleMs={scaleMs} />
              </td>
              <td class="muted">{start.error || longestStep(start)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
