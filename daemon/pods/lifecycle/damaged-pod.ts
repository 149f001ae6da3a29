import { join } from "node:path";
import type { PodSpec } from "../../../api/pod-spec.ts";
import { toPodnetError } from "../../../core/errors.ts";
import { parsePodId } from "../../../core/names.ts";
import { removeOverlaysOf } from "../../../hypervisor/disks/copy-on-write.ts";
import type { Config } from "../../config/config.ts";
import type { DamagedPod } from "../store/pod-rows.ts";
import type { Ending } from "./end-pod.ts";
import type { KeptPlan, KeptPlans } from "../store/kept-plans.ts";
import { livePod, unsubscribe } from "./live-pod.ts";
import { planToReap } from "./orphans.ts";
import { undoPod } from "./undo.ts";

/** What a delete of a pod with an unreadable record needs. */
export interface DamagedEnding extends Ending {
  readonly config: Pick<Config, "podsDir" | "disksDir" | "stateDir">;
  readonly kept: KeptPlans;
}

/**
 * Ends a pod with an unreadable record, as far as its resources are known: by the plan that podnetd
 * holds or that is kept alongside the state, else by its other rows and the paths of its files. The
 * caller has the pod's turn.
 */
export async function deleteDamaged(pod: DamagedPod, ending: DamagedEnding): Promise<void> {
  const { records, host, log, config } = ending;
  // Paths are made of it.
  const id = parsePodId(pod.id);
  const found = keptOf(pod, ending);
  const place = { podId: id, runDir: join(config.podsDir, id), rowless: false, pid: undefined };
  const vm = planToReap({ ...place, kept: found }, host.confinement);
  const remains = records.remains(pod, vm);
  // Without a plan, the run does not show which kind of machine it is; podnet's own is found by its
  // directory.
  const live =
    ending.held(id) ??
    (found === undefined
      ? livePod({ plan: remains, spec: unknownSpec })
      : livePod(found, records.run(id)));
  unsubscribe(live);
  ending.gone(live);
  const failures = [
    ...(await undoPod(live, host, { graceful: false, dropDisks: "anyway" })),
    ...(await failureOf(removeOverlaysOf(config.disksDir, id))),
  ];
  for (const err of failures) log.error({ pod_id: id, err }, "Failed to remove all of the pod");
  const left = { plan: live.plan, spec: found?.spec ?? unknownSpec };
  records.forgetDamaged(remains, failures.length === 0 ? undefined : left);
  log.warn({ pod_id: id }, "Deleted a pod with a damaged record");
}

/** The plan kept alongside the state, if it is this pod's of this state. */
function keptOf({ id, name }: DamagedPod, { kept, config }: DamagedEnding): KeptPlan | undefined {
  const found = kept.get(id);
  return found?.plan.name === name && found.stateDir === config.stateDir ? found : undefined;
}

async function failureOf(work: Promise<void>): Promise<readonly Error[]> {
  try {
    await work;
    return [];
  } catch (thrown) {
    return [toPodnetError(thrown)];
  }
}

const unknownSpec: PodSpec = {
  labels: {},
  resources: { vcpu: 1, memoryMib: 0 },
  boot: { cmdline: "", disks: [] },
  interfaces: [],
  routes: [],
};
