import { useState } from "preact/hooks";
import { clock } from "./format.ts";
import type { Event } from "./model.ts";

/** What happened last, newest first; also before the page was opened. */
export function Events({ events }: { events: readonly Event[] }) {
  const [kind, setKind] = useState("");
  const kinds = [...new Set(events.map(({ what }) => what))].toSorted();
  const shown = events.filter(({ what }) => kind === "" || what === kind);
  return (
    <>
      <label class="field">
        Kind{" "}
        <select value={kind} onChange={({ currentTarget }) => setKind(currentTarget.value)}>
          <option value="">all</option>
          {kinds.map((each) => (
            <option key={each}>{each}</option>
          ))}
        </select>
      </label>
      {shown.length === 0 ? <p class="muted">Nothing has happened</p> : null}
      <ol class="plain lines" aria-label="Events, newest first">
        {shown.map(({ key, timeMs, what, tone, pod, text }) => (
          <li key={key}>
            <time>{clock(timeMs)}</time> <span class={`what ${tone}`}>{what}</span>{" "}
            <strong>{pod}</strong> <span class="text">{text}</span>
          </li>
        ))}
      </ol>
    </>
  );
}
