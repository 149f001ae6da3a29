import type { PodSpec, PortSpec } from "../../../api/pod-spec.ts";
import { checkPortCount } from "../../../api/validate-ports.ts";
import { toPodnetError } from "../../../core/errors.ts";
import type { PodFragment } from "../../../network/model/desired.ts";
import type { PodContents, PodRow } from "../store/pod-row.ts";
import { gatherPorts, type PortsWorld } from "../../published/gather-ports.ts";
import { keepTrying } from "./keep-trying.ts";
import type { LivePod } from "./live-pod.ts";
import { planPublished, publishedDesired } from "../../published/plan-published.ts";
import { sourcesAlso, sourcesDiffer } from "../interfaces/plan-sources.ts";
import { type PodPlan, withNic } from "../store/pod-plan.ts";
import type { PublishedPlan } from "../../published/published-plan.ts";
import type { Supervision } from "./supervision.ts";

/** Longest the host's rules may take, milliseconds. */
const rulesMs = 30_000;

/** A pod with more ports published than it has. Takes nothing. Throws as `planPublished`, and `INVALID_ARGUMENT`. */
export function withPorts(
  { plan, spec }: PodContents,
  more: readonly PortSpec[],
  world: PortsWorld,
): PodContents {
  const { interfaces, guest, published = [] } = plan;
  checkPortCount([...published, ...more], "ports");
  const pod = { interfaces, routes: guest.routes };
  const added = planPublished(more, pod, gatherPorts(more, world));
  return {
    plan: withPublished(plan, [...published, ...added]),
    spec: { ...spec, ports: [...(spec.ports ?? []), ...more] },
  };
}

/** A pod without some of its published ports; what it does not publish is passed over. */
export function withoutPorts({ plan, spec }: PodContents, asked: readonly PortSpec[]): PodContents {
  const stays = (_: unknown, i: number): boolean => {
    const entry = plan.published?.[i];
    return entry === undefined || !asked.some((one) => isMeant(entry, one));
  };
  const { ports, ...rest } = spec;
  const left = ports?.filter(stays) ?? [];
  const without: PodSpec = left.length === 0 ? rest : { ...rest, ports: left };
  return { plan: withPublished(plan, (plan.published ?? []).filter(stays)), spec: without };
}

/** Positions in `asked` of the entries that match no published port of the pod. */
export const notPublished = (
  { published = [] }: PodPlan,
  asked: readonly PortSpec[],
): readonly number[] =>
  asked.flatMap((one, i) => (published.some((entry) => isMeant(entry, one)) ? [] : [i]));

/** Published ports of a pod by one plan that another plan of the pod no longer has. */
export const removedPorts = (before: PodPlan, after: PodPlan): readonly PublishedPlan[] =>
  before.published?.filter((each) => !after.published?.includes(each)) ?? [];

/** By what it is at the host; by the pod's port, where a chosen one is not named. */
const isMeant = (entry: PublishedPlan, { hostPort, podPort, count, hostIp, protocol }: PortSpec) =>
  entry.protocol === protocol &&
  entry.hostIp === hostIp &&
  entry.count === count &&
  (hostPort === 0 ? entry.podPort === podPort : entry.hostPort === hostPort);

/** The fragment says so, too, when there are none any more: what was published then is taken away. */
function withPublished(
  plan: PodPlan,
  published: readonly PublishedPlan[],
  had = plan.ports.published !== undefined,
): PodPlan {
  const desired = publishedDesired(published, plan.interfaces);
  const rules = desired.length > 0 || had;
  const stays = new Set(desired.map((each) => JSON.stringify(each)));
  const withdrawn = plan.ports.published?.filter((each) => !stays.has(JSON.stringify(each))) ?? [];
  const ports = rules ? { ...plan.ports, published: desired, withdrawn } : plan.ports;
  return { ...plan, ports, published };
}

/**
 * Publishes what `next` has more than the pod: all of it or none. The sockets come first, since they end with this
 * process whatever becomes of it, and are what is refused if anything is; then the only commit, and the rules after it.
 * Rules that fail are undone; those that a start does not find are made by it. `stillFree` throws when another pod
 * has been given one of the ports meanwhile.
 */
export async function publish(
  live: LivePod,
  row: PodRow,
  next: PodContents,
  stillFree: () => void,
  watch: Supervision,
): Promise<void> {
  const { records, host } = watch;
  const { podId, published } = row.plan;
  const ruled = rulesDiffer(row.plan, next.plan);
  await host.published.hold(podId, next.plan.published, published?.length);
  try {
    stillFree();
    records.replan(live, { ...next, text: "ports published" });
  } catch (thrown) {
    host.published.keep(podId, published);
    throw thrown;
  }
  if (!ruled) return;
  try {
    await ensureRules(live, watch);
  } catch (thrown) {
    const error = toPodnetError(thrown);
    const plan = withPublished(row.plan, published ?? [], next.plan.ports.published !== undefined);
    const undo = async (): Promise<void> => {
      records.replan(live, { plan, spec: row.spec, text: `not published: ${error.message}` });
      host.published.keep(podId, published);
      await ensureRules(live, watch);
    };
    await undo().catch((left: unknown) => {
      keepTrying(row, "what was not published is left", left, watch, undo);
    });
    throw error;
  }
}

/** Takes away what `next` has less. Once committed it is completed, if need be later. */
export async function unpublish(
  live: LivePod,
  row: PodRow,
  next: PodContents,
  watch: Supervision,
): Promise<void> {
  const { records, host } = watch;
  const ruled = rulesDiffer(row.plan, next.plan);
  records.replan(live, { ...next, text: "ports unpublished" });
  const complete = async (): Promise<void> => {
    if (ruled) {
      await ensureRules(live, watch);
      const { published = [] } = live.plan.ports;
      await host.network.withdraw({ ...next.plan.ports, published });
    }
    host.published.keep(row.id, live.plan.published);
  };
  await complete().catch((thrown: unknown) => {
    keepTrying(row, "a port is still published", thrown, watch, complete);
  });
}

/** Whether the host's rules are others by another plan: of what comes by loopback there are none. */
const rulesDiffer = (one: PodPlan, other: PodPlan): boolean =>
  JSON.stringify(one.ports.published) !== JSON.stringify(other.ports.published);

/** Gives the host the rules for what the pod publishes now, beside ports it has already. */
async function ensureRules(live: LivePod, watch: Supervision): Promise<void> {
  if (live.plan.ports.published !== undefined) await ensureRulesOf(live, live.plan.ports, watch);
}

/** Gives the host a pod's rules as `ports` has them, beside ports it has already. */
async function ensureRulesOf(
  live: LivePod,
  ports: PodFragment,
  { host }: Supervision,
): Promise<void> {
  const plugged = withNic(live.plan.interfaces).filter(({ position }) =>
    live.plugged.has(position),
  );
  const fragment: PodFragment = {
    ...ports,
    ports: ports.ports.filter(({ tap }) => plugged.some(({ nic }) => nic.tap === tap)),
  };
  await host.network.ensure(fragment, AbortSignal.timeout(rulesMs));
}

/** Has the host let pass what the pod may send from now, where that is not as by `before`. */
export async function ensureSources(
  live: LivePod,
  before: PodPlan,
  watch: Supervision,
): Promise<void> {
  if (sourcesDiffer(before, live.plan))
    await ensureRulesOf(live, sourcesAlso(live.plan.ports), watch);
}
