import type { PodSpec } from "../../../api/pod-spec.ts";
import { PodnetError } from "../../../core/errors.ts";
import { type PodName, parsePodName } from "../../../core/names.ts";
import { readInlineRules } from "../../../policy/read-document.ts";
import { guestConfigOf } from "../guest/guest-config.ts";
import { agentOf, guestOf } from "../guest/guest-of.ts";
import { planDataDisks } from "../disks/plan-disk.ts";
import { planMachine } from "../machine/plan-machine.ts";
import { planInterfaces } from "../interfaces/plan-interfaces.ts";
import { planPublished } from "../../published/plan-published.ts";
import { planRoutes, routesOf } from "../interfaces/plan-routes.ts";
import { planServers } from "../interfaces/plan-servers.ts";
import { planProcess } from "../process/plan-process.ts";
import { type PodPlan, planVersion } from "../store/pod-plan.ts";
import type { Snapshot } from "./snapshot.ts";

/** The name a pod gets that asks for none. */
export const defaultPodName = (podId: string): PodName => parsePodName(`pod-${podId.slice(0, 6)}`);

/**
 * Decides everything about a new pod, without effect: the same spec and snapshot give the same
 * plan.
 *
 * Throws the first thing wrong with the request: `NAME_IN_USE`, `ADDRESS_*`, `MAC_IN_USE`,
 * `GATEWAY_CONFLICT`, `MTU_OUT_OF_RANGE`, `BRIDGE_FULL`, `NIC_SLOTS_FULL`, `IMAGE_*`,
 * `MEMORY_TOO_SMALL`, `NETWORK_NOT_FOUND`, `POOL_EXHAUSTED`, `PORT_IN_USE`, `PORTS_EXHAUSTED`,
 * `UNSUPPORTED`, `INVALID_ARGUMENT`, and as `readInlineRules`.
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
  if (spec.policy !== undefined) readInlineRules(spec.policy, { kind: "pod", name });
  const agent = agentOf(spec);
  const kind = guestOf({ agent });
  kind.refuse(spec);
  const vm = planMachine(spec, snapshot);
  const fieldOf = (i: number): string => `interfaces[${i}]`;
  const world = kind.world(snapshot, spec.interfaces, fieldOf);
  const asked = spec.routes.map((route, i) => ({ ...route, field: `routes[${i}]` }));
  const interfaces = planInterfaces(spec.interfaces, fieldOf, { others: [], routes: asked }, world);
  const routes = planRoutes(spec, interfaces);
  const process = planProcess(spec, snapshot.image);
  const disks = planDataDisks(spec, snapshot);
  const plan: PodPlan = {
    version: planVersion,
    podId: snapshot.podId,
    name,
    vm,
    ...(agent === undefined ? {} : { agent }),
    interfaces,
    routes,
    dns: planServers(spec, snapshot.dns),
    ...(process === undefined ? {} : { process }),
    ...(disks.length === 0 ? {} : { disks }),
  };
  kind.refuseDecided(spec, guestConfigOf({ plan, spec }), interfaces, snapshot.networks);
  const published = planPublished(
    spec.ports ?? [],
    { interfaces, routes: routesOf(plan) },
    snapshot.hostPorts,
  );
  return published.length === 0 ? plan : { ...plan, published };
}
