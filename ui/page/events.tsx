import { useState } from "preact/hooks";
import { clock } from "./format.ts";
import type { Event } from "./model.ts";

/** What happened since the page was opened, newest first. */
export function Events({ events }: { events: readonly Event[] }) {
  const [kind, setKind] = useState("");
  const kinds = [...new Set(events.map(({ what }) => what))].toSorted();
  const shown = events.filter(({ what }) => kind === "" || what === kind);
  return (
    <>
      <label>
        Kind{" "}
        <select value={kind} onChange={({ currentTarget }) => setKind(currentTarget.value)}>
          <option value="">all</option>
          {kinds.map((each) => (
            <option key={each}>{each}</option>
          ))}
        </select>
      </label>
      {shown.length === 0 ? <p class="muted">Nothing has happened since the page was opened</p> : null}
      <ol class="plain">
        {shown.map(({ key, timeMs, what, pod, text }) => (
          <li key={key}>
            <time>{clock(timeMs)}</time> <span class="what">{what}</span> <strong>{pod}</strong>{" "}
            {text}
          </li>
        ))}
      </ol>
    </>
  );
}
