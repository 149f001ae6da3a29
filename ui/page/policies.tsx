import { timestampMs } from "@bufbuild/protobuf/wkt";
import { clock } from "./format.ts";
import type { State } from "./model.ts";

/** Policies with their pods, and what they denied last. */
export function Policies({ state }: { state: State }) {
  return (
    <>
      {state.policies.length === 0 ? (
        <p class="muted">No policies: pods may open every connection that their network allows.</p>
      ) : (
        <table>
          <thead>
            <tr>
              <th scope="col">Policy</th>
              <th scope="col">Pods and containers</th>
            </tr>
          </thead>
          <tbody>
            {state.policies.map(({ name, pods, containers }) => (
              <tr key={name}>
                <th scope="row">{name}</th>
                <td>{[...pods, ...containers].join(", ")}</td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
      <h3>Denied last</h3>
      {state.verdicts.length === 0 ? <p class="muted">Nothing was denied</p> : null}
      <ol class="plain" aria-live="polite">
        {state.verdicts.map(({ key, verdict: { verdict, lost } }) => (
          <li key={key}>
            {verdict === undefined ? (
              <span class="muted">{String(lost)} verdicts were not read</span>
            ) : (
              <>
                <time>{verdict.time === undefined ? "" : clock(timestampMs(verdict.time))}</time>{" "}
                <strong>{verdict.pod || verdict.container}</strong> {verdict.direction}{" "}
                {verdict.protocol} {verdict.name || verdict.address}
                {verdict.port === 0 ? "" : `:${verdict.port}`}{" "}
                <span class="muted">
                  {verdict.policy}/{verdict.rule} {verdict.reason}
                  {verdict.count > 1n ? ` (${verdict.count} times)` : ""}
                </span>
              </>
            )}
          </li>
        ))}
      </ol>
    </>
  );
}
