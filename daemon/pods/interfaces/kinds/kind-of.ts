import type { InterfaceSpec } from "../../../../api/pod-spec.ts";
import { assertNever } from "../../../../core/brand.ts";
import { queuesOf } from "../../../../hypervisor/argv/plug-commands.ts";
import type { VmPlan } from "../../../../hypervisor/driver.ts";
import type { InterfacePlan } from "../../store/pod-plan.ts";
import { bridgeKind, bridgePlanned } from "./bridge.ts";
import { cniKind, cniPlanned } from "./cni.ts";
import type { InterfaceKind, Planning } from "./kind.ts";
import { loopbackKind, loopbackPlanned } from "./loopback.ts";
import { networkKind, networkPlanned } from "./network.ts";
import type { PlannedKind } from "./planned-kind.ts";
import { tapKind, tapPlanned } from "./tap.ts";

/** The decisions of a requested interface's kind. Throws as the modules of this folder do. */
export function kindOf(request: InterfaceSpec, planning: Planning): InterfaceKind {
  switch (request.kind) {
    case undefined:
      return networkKind(request.network, request, planning);
    case "bridge":
      return bridgeKind(request.bridge, request, planning);
    case "tap":
      return tapKind(request.tap, request, planning);
    case "loopback":
      return loopbackKind(request, planning);
    case "cni":
      return cniKind(request.cni, request, planning);
    default:
      return assertNever(request);
  }
}

/** The kind of a planned interface. */
export function plannedKind({ network, nic, tapKept, cni }: InterfacePlan): PlannedKind {
  if (nic === undefined) return loopbackPlanned;
  if (tapKept === true) return tapPlanned;
  if (cni !== undefined) return cniPlanned(cni);
  return network === undefined ? bridgePlanned : networkPlanned;
}

/** Whether podnetd makes the interface's tap, in its own namespace. */
export function hasOwnTap(each: InterfacePlan): boolean {
  const { replaced, foreignTap } = plannedKind(each);
  return each.nic !== undefined && replaced === undefined && foreignTap !== true;
}

/** How many queues the tap of an interface has: one, but for taps that podnetd makes. */
export const queuesOfTap = (each: InterfacePlan, vm: VmPlan): number =>
  hasOwnTap(each) ? queuesOf(vm) : 1;
