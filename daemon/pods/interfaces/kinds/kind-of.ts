import type { InterfaceSpec } from "../../../../api/pod-spec.ts";
import { assertNever } from "../../../../core/brand.ts";
import type { InterfacePlan } from "../../store/pod-plan.ts";
import { bridgeKind, bridgeText } from "./bridge.ts";
import { cniKind, cniText } from "./cni.ts";
import type { InterfaceText } from "./interface-text.ts";
import type { InterfaceKind, Planning } from "./kind.ts";
import { loopbackKind, loopbackText } from "./loopback.ts";
import { networkKind, networkText } from "./network.ts";
import { tapKind, tapText } from "./tap.ts";

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

/** The text of a planned interface. */
export function interfaceText({ network, nic, tapKept, cni }: InterfacePlan): InterfaceText {
  if (nic === undefined) return loopbackText;
  if (tapKept === true) return tapText;
  if (cni !== undefined) return cniText;
  return network === undefined ? bridgeText : networkText;
}
