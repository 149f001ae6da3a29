import type { PodSpec, PortSpec } from "../../../api/pod-spec.ts";
import { checkPortCount } from "../../../api/validate/ports.ts";
import type { PodFragment } from "../../../network/model/desired.ts";
import { toPodnetError } from "../../../core/errors.ts";
import type { PodContents, PodRow } from "../store/pod-row.ts";
import { gatherPorts, type PortsWorld } from "../../published/gather-ports.ts";
import { keepTrying } from "./keep-trying.ts";
import type { LivePod } from "./live-pod.ts";
import { planPublished } from "../../published/plan-published.ts";
import { routesOf } from "../interfaces/plan-routes.ts";
import { portsOf, rulesDiffer, rulesOf } from "../interfaces/pod-ports.ts";
import { type PodPlan, withNic } from "../store/pod-plan.ts";
import type { PublishedPlan } from "../../published/published-plan.ts";
import type { Supervision } from "./supervision.ts";

/** Longest the host's rules may take, milliseconds. */
const rulesMs = 30_000;

/**
 * A pod with more ports published than it has. Takes nothing. Throws as `planPublished`, and
 * `INVALID_ARGUMENT`.
 */
export function withPorts(
  { plan, spec }: PodContents,
  more: readonly PortSpec[],
  world: PortsWorld,
): PodContents {
  const { interfaces, published = [] } = plan;
  checkPortCount([...published, ...more], "ports");
  const pod = { interfaces, routes: routesOf(plan) };
  const added = planPublished(more, pod, gatherPorts(more, world));
  return {
    plan: withPublished(plan, [...published, ...added]),
    spec: { ...spec, ports: [...(spec.ports ?? []), ...more] },
  };
}

/** A pod without some of its published ports; ports that it does not publish are ignored. */
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

/** Compares the ports on the host; for a host port that podnetd chose, the pod's port. */
const isMeant = (entry: PublishedPlan, { hostPort, podPort, count, hostIp, protocol }: PortSpec) =>
  entry.protocol === protocol &&
  entry.hostIp === hostIp &&
  entry.count === count &&
  (hostPort === 0 ? entry.podPort === podPort : entry.hostPort === hostPort);

/** Keeps the removed translations in the plan, so that their connections are cut. */
function withPublished(plan: PodPlan, published: readonly PublishedPlan[]): PodPlan {
  const next = { ...plan, published };
  const had = rulesOf(plan).published;
  const desired = rulesOf(next).published ?? [];
  if (had === undefined && desired.length === 0) return next;
  const stays = new Set(desired.map((each) => JSON.stringify(each)));
  return { ...next, withdrawn: (had ?? []).filter((each) => !stays.has(JSON.stringify(each))) };
}

/**
 * Publishes the ports that `next` has in addition, all or none. Sockets are opened first: they end
 * with this process in any case, and are refused most often. Then comes the only commit, and the
 * rules after it, while the commit is flushed: a loss of power ends the rules, too. What fails is
 * undone, and a start makes missing rules. `stillFree` throws when another pod has got one of the
 * ports meanwhile.
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
    records.replan(live, { ...next, text: "ports published", flushedLater: true });
  } catch (thrown) {
    host.published.keep(podId, published);
    throw thrown;
  }
  try {
    await ended([records.flushed(), ruled ? ensurePublished(live, row.plan, watch) : undefined]);
  } catch (thrown) {
    const error = toPodnetError(thrown);
    const plan: PodPlan = { ...row.plan, published: published ?? [], withdrawn: [] };
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

/**
 * Removes the ports that `next` lacks. Once committed the removal is completed, if need be later.
 */
export async function unpublish(
  live: LivePod,
  row: PodRow,
  next: PodContents,
  watch: Supervision,
): Promise<void> {
  const { records, host } = watch;
  const ruled = rulesDiffer(row.plan, next.plan);
  records.replan(live, { ...next, text: "ports unpublished", flushedLater: true });
  const complete = async (): Promise<void> => {
    if (ruled) {
      await ensurePublished(live, row.plan, watch);
      const { published = [] } = rulesOf(live.plan);
      await host.network.remove(
        {
          kind: "withdrawn-connections",
          of: { ...portsOf(next.plan, host.networks.list()), published },
        },
        AbortSignal.timeout(rulesMs),
      );
    }
    host.published.keep(row.id, live.plan.published);
  };
  const completed = complete().catch((thrown: unknown) => {
    keepTrying(row, "a port is still published", thrown, watch, complete);
  });
  await ended([records.flushed(), completed]);
}

/** Waits for all of them, and throws why the first that failed did. */
async function ended(works: readonly unknown[]): Promise<void> {
  const failed = (await Promise.allSettled(works)).find(({ status }) => status === "rejected");
  if (failed?.status === "rejected") throw failed.reason;
}

/** Applies a pod's current rules to the host, alongside the ports that it has already. */
export async function ensureRules(live: LivePod, watch: Supervision): Promise<void> {
  await watch.host.network.apply(pluggedPart(live, watch), AbortSignal.timeout(rulesMs));
}

/** Applies what a pod publishes now to the host, and nothing else. */
async function ensurePublished(live: LivePod, before: PodPlan, watch: Supervision): Promise<void> {
  const had = rulesOf(before).published ?? [];
  await watch.host.network.apply(
    { kind: "published", pod: pluggedPart(live, watch), had },
    AbortSignal.timeout(rulesMs),
  );
}

/** A pod's fragment with those of its ports that are plugged. */
function pluggedPart(live: LivePod, { host }: Supervision): PodFragment {
  const fragment = portsOf(live.plan, host.networks.list());
  const plugged = withNic(live.plan.interfaces).filter(({ position }) =>
    live.plugged.has(position),
  );
  const ports = fragment.ports.filter(({ tap }) => plugged.some(({ nic }) => nic.tap === tap));
  return { ...fragment, ports };
}

/** Applies a pod's rules to the host when they differ from those of `before`. */
export async function ensureRulesSince(
  live: LivePod,
  before: PodPlan,
  watch: Supervision,
): Promise<void> {
  if (rulesDiffer(before, live.plan)) await ensureRules(live, watch);
}
