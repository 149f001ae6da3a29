import { useRef, useState } from "preact/hooks";
import { timestampMs } from "@bufbuild/protobuf/wkt";
import type { Pod } from "../../api/gen/podnet/v1/pod_pb.ts";
import { age, bare, bytes, rate } from "./format.ts";
import type { State } from "./model.ts";
import { stateWord, toneOf } from "./states.ts";

/** Rows have one height, so that only those in sight are in the document. */
const rowPx = 34;
const spare = 8;

/** A table of pods, of which only the rows in sight are drawn: quick with thousands. */
export function PodTable({
  state,
  pods,
  chosen,
  choose,
}: {
  state: State;
  pods: readonly Pod[];
  chosen: string | undefined;
  choose: (id: string) => void;
}) {
  const box = useRef<HTMLDivElement>(null);
  const [top, setTop] = useState(0);
  const height = box.current?.clientHeight ?? 800;
  const first = Math.max(0, Math.floor(top / rowPx) - spare);
  const last = Math.min(pods.length, Math.ceil((top + height) / rowPx) + spare);
  const now = Date.now();
  const move = (event: KeyboardEvent): void => {
    const step = { ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10 }[event.key];
    if (step === undefined || pods.length === 0) return;
    event.preventDefault();
    const at = pods.findIndex(({ id }) => id === chosen);
    const to = Math.min(pods.length - 1, Math.max(0, at + step));
    choose(pods[to]?.id ?? "");
    box.current?.scrollTo({ top: Math.max(0, to * rowPx - height / 2) });
  };
  return (
    <div
      ref={box}
      class="table"
      tabIndex={0}
      role="region"
      aria-label="Pods; arrow keys choose one"
      onScroll={({ currentTarget }) => setTop(currentTarget.scrollTop)}
      onKeyDown={move}
    >
      <table aria-rowcount={pods.length + 1}>
        <thead>
          <tr>
            {["Name", "State", "Age", "Network", "Address", "Received", "Sent", "Memory"].map(
              (title) => (
                <th key={title} scope="col">
                  {title}
                </th>
              ),
            )}
          </tr>
        </thead>
        <tbody>
          <tr aria-hidden="true" style={{ height: `${first * rowPx}px` }} />
          {pods.slice(first, last).map((pod, i) => {
            const stats = state.stats.get(pod.id);
            const [rates] = stats?.interfaces.flatMap((each) => each.rates ?? []) ?? [];
            return (
              <tr
                key={pod.id}
                aria-rowindex={first + i + 2}
                aria-selected={pod.id === chosen}
                class={pod.id === chosen ? "chosen" : ""}
                onClick={() => choose(pod.id)}
              >
                <th scope="row">
                  <button type="button" class="link" tabIndex={-1}>
                    {pod.name}
                  </button>
                </th>
                <td title={pod.reason}>
                  <span class={`dot ${toneOf(pod)}`} aria-hidden="true" /> {stateWord(pod)}
                </td>
                <td>{pod.createdAt === undefined ? "" : age(now - timestampMs(pod.createdAt))}</td>
                <td>{[...new Set(pod.interfaces.map(({ network }) => network))].join(" ")}</td>
                <td>{pod.interfaces.flatMap(({ addresses }) => addresses.map(bare)).join(" ")}</td>
                <td>{rates === undefined ? "" : rate(rates.rxBytesPerS)}</td>
                <td>{rates === undefined ? "" : rate(rates.txBytesPerS)}</td>
                <td>
                  {stats?.machine === undefined ? "" : bytes(Number(stats.machine.memoryBytes))}
                </td>
              </tr>
            );
          })}
          <tr aria-hidden="true" style={{ height: `${(pods.length - last) * rowPx}px` }} />
        </tbody>
      </table>
      {pods.length === 0 ? <p class="muted">No pods. Create one: podnet create --name web</p> : null}
    </div>
  );
}
