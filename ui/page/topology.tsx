import { memo } from "preact/compat";
import type { Network } from "../../api/gen/podnet/v1/network_service_pb.ts";
import type { Pod } from "../../api/gen/podnet/v1/pod_pb.ts";
import type { PodStats } from "../../api/gen/podnet/v1/pod_service_pb.ts";
import { bare, count, rate } from "./format.ts";
import type { State } from "./model.ts";
import { stateWord, toneOf } from "./states.ts";

/** So many pods of a network are shown with their names; more of them as squares. */
const named = 60;

interface Rates {
  readonly rx: number;
  readonly tx: number;
}

const ratesOf = (stats: PodStats | undefined): Rates => {
  const all = stats?.interfaces.flatMap(({ rates }) => rates ?? []) ?? [];
  return {
    rx: all.reduce((sum, { rxBytesPerS }) => sum + rxBytesPerS, 0),
    tx: all.reduce((sum, { txBytesPerS }) => sum + txBytesPerS, 0),
  };
};

const sum = (all: readonly Rates[]): Rates => ({
  rx: all.reduce((total, { rx }) => total + rx, 0),
  tx: all.reduce((total, { tx }) => total + tx, 0),
});

function Rate({ rates: { rx, tx } }: { rates: Rates }) {
  return (
    <span class={`rate${rx + tx === 0 ? " still" : ""}`}>
      <span aria-label="received">↓</span> {rate(rx)} <span aria-label="sent">↑</span> {rate(tx)}
    </span>
  );
}

/** One pod on a network. Only drawn again when what it shows has changed. */
const Chip = memo(function Chip({
  id,
  name,
  tone,
  title,
  address,
  flow,
  small,
  choose,
}: {
  id: string;
  name: string;
  tone: string;
  title: string;
  address: string;
  flow: string;
  small: boolean;
  choose: (id: string) => void;
}) {
  return (
    <li>
      <button
        type="button"
        class={`chip ${tone}${small ? " small" : ""}`}
        title={title}
        aria-label={title}
        onClick={() => choose(id)}
      >
        {small ? null : (
          <>
            <span class="name">{name}</span>
            <span class="address">{address}</span>
            <span class="flow">{flow}</span>
          </>
        )}
      </button>
    </li>
  );
});

/** What a pod sends and receives, in few characters. */
const flowOf = ({ rx, tx }: Rates): string => (rx + tx === 0 ? "idle" : `↓ ${rate(rx)} ↑ ${rate(tx)}`);

/** The networks that pods are on; a pod on several is on each. Other interfaces have none. */
function byNetwork(pods: readonly Pod[]): Map<string, Pod[]> {
  const found = new Map<string, Pod[]>();
  for (const pod of pods)
    for (const name of new Set(pod.interfaces.map(({ network }) => network)))
      found.set(name, [...(found.get(name) ?? []), pod]);
  return found;
}

function NetworkCard({
  title,
  network,
  pods,
  state,
  choose,
}: {
  title: string;
  network: Network | undefined;
  pods: readonly Pod[];
  state: State;
  choose: (id: string) => void;
}) {
  const containers = state.containers.filter((each) => each.network === network?.name);
  const small = pods.length > named;
  const rates = sum(pods.map(({ id }) => ratesOf(state.stats.get(id))));
  return (
    <section class="network card" aria-label={`Network ${title}`}>
      <header>
        <h3>{title}</h3>
        <span class="muted">
          {network === undefined
            ? "foreign bridges, taps and links"
            : `${network.bridge} · ${network.subnets.map(({ cidr }) => cidr).join(" · ")}`}
        </span>
        <span class="muted">
          {count(pods.length, "pod")}
          {containers.length === 0 ? "" : `, ${count(containers.length, "container")}`}
        </span>
        <Rate rates={rates} />
      </header>
      {pods.length + containers.length > 0 ? null : <p class="muted">Nothing is on it</p>}
      <ul class="chips">
        {pods.map((pod) => (
          <Chip
            key={pod.id}
            id={pod.id}
            name={pod.name}
            tone={toneOf(pod)}
            address={pod.interfaces.find((each) => each.network === network?.name)?.addresses.map(bare)[0] ?? ""}
            flow={small ? "" : flowOf(ratesOf(state.stats.get(pod.id)))}
            title={`${pod.name}, ${stateWord(pod)}, ${pod.interfaces.flatMap((i) => i.addresses.map(bare)).join(" ") || "no address"}`}
            small={small}
            choose={choose}
          />
        ))}
        {containers.map((each) => (
          <li key={each.id}>
            <span
              class={`chip container ${each.trouble === "" ? "good" : "warn"}${small ? " small" : ""}`}
              title={`container ${each.pod || each.containerId.slice(0, 12)}, ${each.addresses.map(bare).join(" ")}`}
            >
              {small ? null : (
                <>
                  <span class="name">{each.pod || each.containerId.slice(0, 12)}</span>
                  <span class="address">{each.addresses.map(bare)[0] ?? ""}</span>
                  <span class="flow">container</span>
                </>
              )}
            </span>
          </li>
        ))}
      </ul>
    </section>
  );
}

function Figure({ title, value, tone = "" }: { title: string; value: string; tone?: string }) {
  return (
    <div class="figure">
      <dt>{title}</dt>
      <dd class={tone}>{value}</dd>
    </div>
  );
}

/** The host in figures. */
function Figures({ state }: { state: State }) {
  const { pods, containers, networks, stats, drift } = state;
  const all = [...pods.values()];
  const running = all.filter((pod) => stateWord(pod) === "running").length;
  const bad = all.filter((pod) => toneOf(pod) === "bad").length;
  const rates = sum([...stats.values()].map(ratesOf));
  const subnets = networks.flatMap((network) => network.subnets);
  const used = subnets.reduce((total, each) => total + Number(each.used), 0);
  const drifted = drift?.parts.filter(({ found }) => found.length > 0).length;
  return (
    <dl class="figures">
      <Figure title="Pods running" value={`${running} of ${pods.size}`} />
      {bad === 0 ? null : <Figure title="Pods failed" value={`${bad}`} tone="bad" />}
      <Figure title="Containers" value={`${containers.length}`} />
      <Figure title="Addresses in use" value={`${used}`} />
      <Figure title="Pods receive" value={rate(rates.rx)} />
      <Figure title="Pods send" value={rate(rates.tx)} />
      <Figure
        title="Host as planned"
        value={drifted === undefined ? "…" : drifted === 0 ? "yes" : `${drifted} differ`}
        tone={drifted === undefined || drifted === 0 ? "" : "warn"}
      />
    </dl>
  );
}

/** The host between its published ports, its networks with pods and containers, and its peers. */
export function Topology({
  state,
  pods,
  choose,
}: {
  state: State;
  pods: readonly Pod[];
  choose: (id: string) => void;
}) {
  const grouped = byNetwork(pods);
  const published = pods.flatMap((pod) => pod.ports.map((port) => ({ pod, port })));
  const others = grouped.get("") ?? [];
  return (
    <>
    <Figures state={state} />
    <div class="topology">
      <section class="side card" aria-label="Published ports">
        <h3>Published ports</h3>
        {published.length === 0 ? <p class="muted">None</p> : null}
        <ul class="plain">
          {published.slice(0, 200).map(({ pod, port }) => (
            <li key={`${pod.id} ${port.hostIp} ${port.hostPort} ${port.protocol}`}>
              <button type="button" class="link" onClick={() => choose(pod.id)}>
                <span class="nowrap">
                  {port.hostIp || "127.0.0.1"}:{port.hostPort}
                  {port.protocol === "tcp" || port.protocol === "" ? "" : `/${port.protocol}`}
                </span>{" "}
                <span class="nowrap">
                  → {pod.name}:{port.podPort}
                </span>
              </button>
            </li>
          ))}
        </ul>
      </section>
      <div class="networks" role="group" aria-label="This host">
        {state.networks.map((network) => (
          <NetworkCard
            key={network.name}
            title={network.name}
            network={network}
            pods={grouped.get(network.name) ?? []}
            state={state}
            choose={choose}
          />
        ))}
        {others.length === 0 ? null : (
          <NetworkCard
            title="other links"
            network={undefined}
            pods={others}
            state={state}
            choose={choose}
          />
        )}
      </div>
      <section class="side card" aria-label="Other hosts">
        <h3>Other hosts</h3>
        {state.peers.length === 0 ? <p class="muted">No overlay</p> : null}
        <ul class="plain peers">
          {state.peers.map((peer) => (
            <li key={peer.key}>
              <span class={`dot ${peer.reachable === false ? "bad" : "good"}`} aria-hidden="true" />{" "}
              {peer.name || peer.publicIps.join(" ")}
              {peer.self ? " (this host)" : ""}
              <span class="muted">
                {" "}
                {peer.subnets.join(" ")}{" "}
                {peer.rttMs === undefined ? "" : `${peer.rttMs.toFixed(1)} ms`}
                {peer.reachable === false ? " unreachable" : ""}
              </span>
            </li>
          ))}
        </ul>
      </section>
    </div>
    </>
  );
}
