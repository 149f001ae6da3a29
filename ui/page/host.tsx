import { Fragment } from "preact";
import { HealthCheck_Status as Status } from "../../api/gen/podnet/v1/node_service_pb.ts";
import { bytes } from "./format.ts";
import type { State } from "./model.ts";

const words: Readonly<Partial<Record<Status, readonly [string, string]>>> = {
  [Status.OK]: ["good", "ok"],
  [Status.WARNING]: ["warn", "warning"],
  [Status.FAILED]: ["bad", "failed"],
};

function Drift({ drift }: Pick<State, "drift">) {
  if (drift === undefined) return <p class="muted">Being compared</p>;
  const parts = drift.parts.filter(({ found, error }) => found.length > 0 || error !== undefined);
  if (parts.length === 0) return <p>The host is as planned: {drift.parts.length} parts compared.</p>;
  return (
    <table>
      <thead>
        <tr>
          <th scope="col">Part</th>
          <th scope="col">Subject</th>
          <th scope="col">Found</th>
          <th scope="col">Planned</th>
        </tr>
      </thead>
      <tbody>
        {parts.flatMap(({ part, pod, found, error }) =>
          error === undefined
            ? found.map((each) => (
                <tr key={`${part} ${each.subject}`}>
                  <th scope="row">
                    {part} {pod}
                  </th>
                  <td>{each.subject}</td>
                  <td>{each.found}</td>
                  <td>{each.wanted}</td>
                </tr>
              ))
            : [
                <tr key={part}>
                  <th scope="row">{part}</th>
                  <td colSpan={3}>{error.message}</td>
                </tr>,
              ],
        )}
      </tbody>
    </table>
  );
}

/** The node: what it is, whether it is healthy, and whether the host is as planned. */
export function Host({ state }: { state: State }) {
  const { info, checks, drift, pools } = state;
  const facts: readonly (readonly [string, string])[] =
    info === undefined
      ? []
      : [
          ["podnetd", `${info.version}, pid ${info.pid}`],
          ["Kernel", `${info.kernel}, ${info.arch}`],
          ["Machines", info.qemuVersion === "" ? "QEMU is not installed" : `QEMU ${info.qemuVersion}, ${info.accelerator}`],
          ["Firewall", info.firewall],
          ["State", info.stateDir],
          ["You", `${info.caller}: ${info.role}`],
        ];
  return (
    <>
      <dl>
        {facts.map(([name, value]) => (
          <Fragment key={name}>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </Fragment>
        ))}
      </dl>
      <h3>Health</h3>
      <ul class="plain">
        {checks.map(({ name, status, message, hint }) => {
          const [tone, word] = words[status] ?? ["idle", "unknown"];
          return (
            <li key={name}>
              <span class={`badge ${tone}`}>{word}</span> <strong>{name}</strong> {message}{" "}
              <span class="muted">{hint}</span>
            </li>
          );
        })}
      </ul>
      <h3>Drift</h3>
      <Drift drift={drift} />
      <h3>Pools of machines</h3>
      {pools.length === 0 ? <p class="muted">None</p> : null}
      <ul class="plain">
        {pools.map(({ vcpu, memoryMib, ready, size, memoryBytes, claimed, missed, error }) => (
          <li key={`${vcpu}x${memoryMib}`}>
            {vcpu} vCPU, {memoryMib} MiB: {ready} of {size} wait, {bytes(Number(memoryBytes))};{" "}
            {String(claimed)} claimed, {String(missed)} missed {error?.message}
          </li>
        ))}
      </ul>
    </>
  );
}
