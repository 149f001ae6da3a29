import { Fragment } from "preact";
import { useEffect, useState } from "preact/hooks";
import type { DescMethodUnary } from "@bufbuild/protobuf";
import { type Pod, PodState } from "../../api/gen/podnet/v1/pod_pb.ts";
import { PodService, type PodStats } from "../../api/gen/podnet/v1/pod_service_pb.ts";
import { type CallError, call } from "./calls.ts";
import { Console } from "./console.tsx";
import { bytes, rate } from "./format.ts";
import { stateWord, toneOf } from "./states.ts";
import { Waterfall } from "./waterfall.tsx";

const { start, stop, pause, resume } = PodService.method;

interface Action {
  readonly title: string;
  readonly when: (state: PodState) => boolean;
  readonly method: DescMethodUnary;
}

const actions: readonly Action[] = [
  {
    title: "Start",
    when: (state) => state === PodState.STOPPED || state === PodState.FAILED,
    method: start,
  },
  { title: "Pause", when: (state) => state === PodState.RUNNING, method: pause },
  { title: "Resume", when: (state) => state === PodState.PAUSED, method: resume },
  { title: "Stop", when: (state) => state === PodState.RUNNING, method: stop },
];

function Actions({ pod }: { pod: Pod }) {
  const [error, setError] = useState<CallError>();
  const [busy, setBusy] = useState(false);
  const run = ({ method }: Action): void => {
    setBusy(true);
    setError(undefined);
    call(method, { idOrName: pod.id })
      .catch((thrown: unknown) => setError(thrown as CallError))
      .finally(() => setBusy(false));
  };
  return (
    <p>
      {actions
        .filter(({ when }) => when(pod.state))
        .map((action) => (
          <button key={action.title} type="button" disabled={busy} onClick={() => run(action)}>
            {action.title}
          </button>
        ))}
      {error === undefined ? null : (
        <span class="error" role="alert">
          {error.message} {error.hint}
        </span>
      )}
    </p>
  );
}

/** Everything about one pod, alongside the view that it was chosen in. */
export function PodDetails({
  pod,
  stats,
  changes,
  close,
}: {
  pod: Pod;
  stats: PodStats | undefined;
  changes: boolean;
  close: () => void;
}) {
  const [withConsole, setWithConsole] = useState(false);
  useEffect(() => {
    document.getElementById("details")?.focus();
  }, [pod.id]);
  return (
    <aside id="details" tabIndex={-1} aria-label={`Pod ${pod.name}`}>
      <header>
        <h2>{pod.name}</h2>
        <span class={`badge ${toneOf(pod)}`}>{stateWord(pod)}</span>
        <button type="button" class="quiet" onClick={close}>
          Close (Esc)
        </button>
      </header>
      {pod.reason === "" ? null : <p>{pod.reason}</p>}
      {pod.failure === undefined ? null : (
        <p class="error">
          {pod.failure.code}: {pod.failure.message} {pod.failure.hint}
        </p>
      )}
      {changes ? <Actions pod={pod} /> : null}
      <dl>
        <dt>Id</dt>
        <dd class="mono">{pod.id}</dd>
        {Object.entries(pod.labels).map(([key, value]) => (
          <Fragment key={key}>
            <dt>{key}</dt>
            <dd>{value}</dd>
          </Fragment>
        ))}
        <dt>Machine</dt>
        <dd>
          {pod.vm === undefined
            ? "does not run"
            : `${pod.vm.vcpu} vCPU, ${pod.vm.memoryMib} MiB, ${pod.vm.accelerator}, pid ${pod.vm.pid}`}
          {stats?.machine === undefined ? "" : `, uses ${bytes(Number(stats.machine.memoryBytes))}`}
        </dd>
      </dl>
      <h3>Interfaces</h3>
      {pod.interfaces.map((each) => {
        const rates = stats?.interfaces.find((one) => one.guestName === each.guestName)?.rates;
        return (
          <section key={each.guestName} class="interface" aria-label={each.guestName}>
            <strong>{each.guestName}</strong>
            <span>{each.addresses.join(" ") || "no address"}</span>
            <span class="muted">on {each.network || each.bridge || "a foreign link"}</span>
            <span class="muted mono">{each.mac}</span>
            <span class="rate">
              {rates === undefined
                ? ""
                : `↓ ${rate(rates.rxBytesPerS)}  ↑ ${rate(rates.txBytesPerS)}`}
            </span>
          </section>
        );
      })}
      <h3>How it came up</h3>
      <Waterfall spans={pod.spans} />
      <h3>Console</h3>
      {withConsole ? (
        <Console id={pod.id} />
      ) : (
        <button type="button" onClick={() => setWithConsole(true)}>
          Show the console
        </button>
      )}
    </aside>
  );
}
