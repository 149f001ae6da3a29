import type { NetworkName, PodId } from "../../../core/names.ts";
import type { PodFragment } from "../../../network/model/desired.ts";
import type { NetworkDefinition } from "../../config/network-definition.ts";
import type { KnownNetworks } from "../../networks/known-networks.ts";
import { configureSoon } from "../guest/follow-agent.ts";
import { asksAlike } from "../guest/guest-config.ts";
import { guestOf } from "../guest/guest-of.ts";
import { answerOtherwise } from "../interfaces/answer-guest.ts";
import { portsOf } from "../interfaces/pod-ports.ts";
import { followServers } from "../plan/gather-networks.ts";
import { type PodPlan, withNic } from "../store/pod-plan.ts";
import type { PodRow } from "../store/pod-row.ts";
import type { Ending } from "./end-pod.ts";
import { type LivePod, livePod } from "./live-pod.ts";

/** Longest a pod's ports may take to follow their network, milliseconds. */
const portsMs = 60_000;

/** The parts of podnetd that pods need to follow their networks. */
export interface Following extends Ending {
  readonly networks: KnownNetworks;
}

const isOn = ({ interfaces }: PodPlan, name: NetworkName): boolean =>
  interfaces.some(({ network }) => network === name);

/**
 * Applies a network update to its pods: their ports on the host, and the name servers of their
 * guests. Guests are configured in their pods' turns; this call does not wait for them.
 */
export async function followNetwork(name: NetworkName, following: Following): Promise<void> {
  const { records, locks } = following;
  const ids = records.list().flatMap(({ id, plan }) => (isOn(plan, name) ? id : []));
  await Promise.all(ids.map((id) => locks.run(id, () => followOne(id, name, following))));
}

async function followOne(id: PodId, name: NetworkName, following: Following): Promise<void> {
  const { records, held, networks } = following;
  const row = records.get(id);
  const live = held(id);
  if (row === undefined) return;
  decideServers(row, live ?? livePod(row), following);
  if (live === undefined) return;
  if (guestOf(live.plan).hasAgent && !asksAlike(row, live))
    configureSoon(live, following, networkChanged);
  answerOtherwise(live, row, following);
  await ensurePorts(live, name, networks.list(), following);
}

const networkChanged = "its network was changed";

/**
 * Writes down the guest's new name servers. A change of the pod that is under way is completed
 * first, by a start.
 */
function decideServers(row: PodRow, live: LivePod, { records, networks }: Following): void {
  const plan = followServers(row, networks);
  if (row.before !== undefined || plan === row.plan) return;
  records.replan(live, { plan, spec: row.spec, text: networkChanged });
}

/** Ports that cannot follow are drift, and repaired as such. */
async function ensurePorts(
  live: LivePod,
  name: NetworkName,
  networks: readonly NetworkDefinition[],
  { host, log }: Following,
): Promise<void> {
  const { published: _asBefore, withdrawn: _cut, ...own } = portsOf(live.plan, networks);
  const taps = withNic(live.plan.interfaces)
    .filter(({ network, position }) => network === name && live.plugged.has(position))
    .map(({ nic }) => nic.tap);
  const fragment = { ...own, ports: own.ports.filter(({ tap }) => taps.includes(tap)) };
  if (fragment.ports.length === 0) return;
  await host.network.apply(fragment, AbortSignal.timeout(portsMs)).catch((err: unknown) => {
    log.error(
      { pod_id: own.key, err },
      "Failed to apply a network's update to a port; drift repair retries",
    );
  });
}

/** The ports that a network's new definition would change. Takes nothing. */
export function changedPorts(
  network: NetworkDefinition,
  { records, networks }: Pick<Following, "records" | "networks">,
): PodFragment[] {
  const now = networks.list();
  const then = [network, ...now.filter(({ name }) => name !== network.name)];
  return records.list().flatMap(({ plan }) => {
    const before = new Set(portsOf(plan, now).ports.map((port) => JSON.stringify(port)));
    const after = portsOf(plan, then);
    const ports = after.ports.filter((port) => !before.has(JSON.stringify(port)));
    return ports.length === 0 ? [] : { ...after, ports };
  });
}

/**
 * Which guests `followNetwork` would send which name servers, with these networks, a line each.
 * Takes nothing.
 */
export function changedServersText(
  name: NetworkName,
  networks: KnownNetworks,
  { records }: Pick<Following, "records">,
): string[] {
  return records.list().flatMap((row) => {
    if (!isOn(row.plan, name)) return [];
    const plan = followServers(row, networks);
    if (plan === row.plan) return [];
    const { servers = [], search = [] } = plan.dns ?? {};
    const words = [
      "name servers",
      ...servers,
      ...(search.length === 0 ? [] : ["search", ...search]),
    ];
    return [`guest of ${row.name}: ${words.join(" ")}`];
  });
}
