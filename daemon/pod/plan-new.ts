import type { CreateSpec } from "../../api/validate.ts";
import { type PodId, podIdFromBytes } from "../../core/names.ts";
import { podIdByName } from "../store/pods.ts";
import { gatherSnapshot, type World } from "./gather.ts";
import { defaultPodName, planPod } from "./plan.ts";
import type { PodPlan } from "./pod-plan.ts";
import type { PodsParts } from "./pods-parts.ts";

/** What a pod of these would be, on a host with these links. Takes nothing. */
export function planNew(
  { spec }: CreateSpec,
  links: World["links"],
  parts: PodsParts,
  imagesOnly: boolean,
): PodPlan {
  const { driver } = parts.host;
  const snapshot = gatherSnapshot(spec, freshId(parts), worldOf(parts, links, imagesOnly));
  return planPod(spec, snapshot, (vm) => driver.describe(vm));
}

/** What the planner's view of the world is gathered from. */
export function worldOf(
  { config, db, addresses, networks, host }: PodsParts,
  links: World["links"],
  imagesOnly: boolean,
): World {
  return {
    config,
    db,
    addresses,
    networks,
    driver: host.driver.capabilities(),
    confinement: host.confinement,
    imagesOnly,
    links,
    randomBytes: (count) => host.randomBytes(count),
  };
}

/** An id that no pod has, nor the name that would be made of it. */
function freshId({ host, db }: PodsParts): PodId {
  for (;;) {
    const id = podIdFromBytes(host.randomBytes(12));
    if (podIdByName(db, defaultPodName(id)) === undefined) return id;
  }
}
