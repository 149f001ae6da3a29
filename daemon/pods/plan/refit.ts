import type { PodSpec } from "../../../api/pod-spec.ts";
import type { NetworkName, PodId } from "../../../core/names.ts";
import type { PodFragment, PortDesired } from "../../../network/model/desired.ts";
import { carried, type NetworkDefinition } from "../../config/network-definition.ts";
import type { PodContents, PodRow } from "../store/pod-row.ts";
import { answerOtherwise } from "../interfaces/answer-guest.ts";
import type { Ending } from "../lifecycle/end-pod.ts";
import { configureSoon } from "../guest/follow-agent.ts";
import { followNetworks } from "./gather-networks.ts";
import type { KnownNetworks } from "../../networks/known-networks.ts";
import { type LivePod, livePod } from "../lifecycle/live-pod.ts";
import { asksAlike } from "../interfaces/plan-servers.ts";
import { hasAgent, type PodPlan, withNic } from "../store/pod-plan.ts";
import { portOfPod } from "../interfaces/running-ports.ts";

/** A pod's plan with its ports as their networks are now; undefined when they are so. Pure. */
export function refitted(
  plan: PodPlan,
  spec: PodSpec,
  networks: readonly NetworkDefinition[],
): PodPlan | undefined {
  const ports = plan.ports.ports.map((port) => refitPort(port, plan, spec, networks));
  const changed = ports.some((port, i) => port !== plan.ports.ports[i]);
  return changed ? { ...plan, ports: { ...plan.ports, ports } } : undefined;
}

function refitPort(
  port: PortDesired,
  { interfaces }: PodPlan,
  spec: PodSpec,
  networks: readonly NetworkDefinition[],
): PortDesired {
  const of = withNic(interfaces).find(({ nic }) => nic.tap === port.tap);
  const network = networks.find(({ name }) => name === of?.network);
  if (of === undefined || network === undefined) return port;
  const at = interfaces.findIndex(({ position }) => position === of.position);
  // What the interface itself asked for stays.
  const isolated = spec.interfaces[at]?.port?.isolated ?? network.isolated;
  const mtu = carried(network);
  return port.isolated === isolated && port.mtu === mtu ? port : { ...port, isolated, mtu };
}

/** The ports of one plan that are others in another. */
const changedPorts = (before: PodPlan, after: PodPlan): PortDesired[] =>
  after.ports.ports.filter((port, i) => port !== before.ports.ports[i]);

/** What it takes to bring ports up to date. */
export interface Refitting extends Ending {
  readonly networks: KnownNetworks;
}

/**
 * Brings the ports of a network's pods up to what it is now, and the name servers of their guests: in their rows, and on the
 * host where they run. Guests are told when it is their turn, and nobody waits for them.
 */
export async function refitPods(name: NetworkName, refitting: Refitting): Promise<void> {
  const ids = refitting.records
    .list()
    .filter(({ plan }) => plan.interfaces.some((each) => each.network === name))
    .map(({ id }) => id);
  await Promise.all(ids.map((id) => refitting.locks.run(id, () => refitPod(id, refitting))));
}

async function refitPod(id: PodId, refitting: Refitting): Promise<void> {
  const { records, held, host, log, networks } = refitting;
  const row = records.get(id);
  const live = held(id);
  if (row === undefined) return;
  const follow = (pod: PodContents): PodContents => followNetworks(pod, networks);
  const changed = refitRow(row, live ?? livePod(row.plan), refitting, follow);
  if (live === undefined) return;
  if (hasAgent(live.plan) && !asksAlike(row.plan, live.plan))
    configureSoon(live, refitting, networkChanged);
  answerOtherwise(live, row.plan, refitting);
  for (const { tap } of changed) {
    const port = portOfPod(live, tap);
    if (port === undefined) continue;
    // One that fails is drift, and healed as such.
    await host.network.ensure(port, AbortSignal.timeout(60_000)).catch((err: unknown) => {
      log.error({ pod_id: id, err }, "A port cannot follow its network yet");
    });
  }
}

const networkChanged = "its network was changed";

/**
 * Writes a pod's ports as their networks are, and answers those that were others. At a start the name servers are left as they are:
 * whether podnetd itself can be asked is known later.
 */
export function refitRow(
  row: PodRow,
  live: LivePod,
  { records, networks }: Pick<Refitting, "records" | "networks">,
  follow: (pod: PodContents) => PodContents = (pod) => pod,
): PortDesired[] {
  // What is under way with it is settled first, by a start.
  if (row.before !== undefined) return [];
  const plan = refitted(row.plan, row.spec, networks.list()) ?? row.plan;
  const next = follow({ plan, spec: row.spec });
  if (next.plan === row.plan) return [];
  records.replan(live, { ...next, text: networkChanged });
  return changedPorts(row.plan, next.plan);
}

/** Whom `refitPods` would tell of which name servers, with these networks, for people. Takes nothing. */
export function refitText(
  name: NetworkName,
  networks: KnownNetworks,
  { records }: Pick<Refitting, "records">,
): string[] {
  return records.list().flatMap((row) => {
    if (row.plan.interfaces.every(({ network }) => network !== name)) return [];
    const { plan } = followNetworks(row, networks);
    if (plan === row.plan) return [];
    const { servers = [], search = [] } = plan.guest.dns ?? {};
    const words = [
      "name servers",
      ...servers,
      ...(search.length === 0 ? [] : ["search", ...search]),
    ];
    return [`guest of ${row.name}: ${words.join(" ")}`];
  });
}

/** What `refitPods` would make of ports for a network as it is to be. Takes nothing. */
export function refitPlan(
  network: NetworkDefinition,
  { records }: Pick<Refitting, "records">,
): PodFragment[] {
  return records.list().flatMap(({ plan, spec }) => {
    const next = refitted(plan, spec, [network]);
    if (next === undefined) return [];
    return { ...next.ports, ports: changedPorts(plan, next) };
  });
}
