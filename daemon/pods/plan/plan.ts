import type { PodSpec } from "../../../api/pod-spec.ts";
import { PodnetError } from "../../../core/errors.ts";
import { type PodName, parsePodName } from "../../../core/names.ts";
import { planAgent } from "../guest/plan-agent.ts";
import { refuseUntellable } from "../guest/plan-agentless.ts";
import { answered } from "../interfaces/plan-answers.ts";
import { agentOfAttached, planAttachedVm } from "./plan-attached.ts";
import { planVm } from "./plan-boot.ts";
import { guestConfigOf } from "../guest/guest-config.ts";
import { refuseForHyperstart, worldOfHyperstart } from "../guest/plan-hyperstart.ts";
import { planInterfaces } from "../interfaces/plan-interfaces.ts";
import { planPublished } from "../../published/plan-published.ts";
import { planRoutes, routesOf } from "../interfaces/plan-routes.ts";
import { planServers } from "../interfaces/plan-servers.ts";
import { type PodPlan, planVersion } from "../store/pod-plan.ts";
import type { Snapshot } from "./snapshot.ts";

/** The name a pod gets that asks for none. */
export const defaultPodName = (podId: string): PodName => parsePodName(`pod-${podId.slice(0, 6)}`);

/**
 * Decides everything about a new pod, without effect: the same spec and snapshot give the same plan.
 *
 * Throws the first thing wrong with what was asked: `NAME_IN_USE`, `ADDRESS_*`, `MAC_IN_USE`, `GATEWAY_CONFLICT`,
 * `MTU_OUT_OF_RANGE`, `BRIDGE_FULL`, `NIC_SLOTS_FULL`, `IMAGE_*`, `MEMORY_TOO_SMALL`, `NETWORK_NOT_FOUND`,
 * `POOL_EXHAUSTED`, `PORT_IN_USE`, `PORTS_EXHAUSTED`, `UNSUPPORTED`, `INVALID_ARGUMENT`.
 */
export function planPod(spec: PodSpec, snapshot: Snapshot): PodPlan {
  const name = spec.name ?? defaultPodName(snapshot.podId);
  if (snapshot.nameHolder !== undefined) {
    throw new PodnetError(
      "NAME_IN_USE",
      `Pod name "${name}" is taken by pod ${snapshot.nameHolder}`,
      {
        field: "name",
        hint: `Choose another name, or delete that pod: podnet delete ${name}`,
        details: { holder: snapshot.nameHolder },
      },
    );
  }
  const { attached } = spec;
  const agent = attached === undefined ? planAgent(spec) : agentOfAttached(attached, spec);
  const bare = attached === undefined ? planVm(spec, snapshot) : planAttachedVm(attached, snapshot);
  const plain = agent === "hyperstart";
  if (plain) refuseForHyperstart(spec);
  const world = plain
    ? worldOfHyperstart(snapshot, spec.interfaces, (i) => `interfaces[${i}]`)
    : snapshot;
  const chosen = planInterfaces(spec, world);
  const interfaces = agent === "none" ? chosen.map((each) => answered(each, snapshot)) : chosen;
  const routes = planRoutes(spec, interfaces);
  const plan: PodPlan = {
    version: planVersion,
    podId: snapshot.podId,
    name,
    vm: { ...bare, ...(agent === "none" && attached === undefined ? { held: true } : {}) },
    ...(agent === undefined ? {} : { agent }),
    interfaces,
    routes,
    dns: planServers(spec, snapshot.dns),
  };
  if (agent === "none" && attached === undefined && spec.boot.cloudInit === undefined)
    refuseUntellable(guestConfigOf({ plan, spec }), interfaces);
  const published = planPublished(
    spec.ports ?? [],
    { interfaces, routes: routesOf(plan) },
    snapshot.hostPorts,
  );
  return published.length === 0 ? plan : { ...plan, published };
}
