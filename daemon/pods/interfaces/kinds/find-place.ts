import { assertNever } from "../../../../core/brand.ts";
import type { Snapshot } from "../../plan/snapshot.ts";
import type { InterfacePlan } from "../../store/pod-plan.ts";
import { bridgePlace, bridgeText } from "./bridge.ts";
import { cniPlace, cniText } from "./cni.ts";
import type { InterfaceText } from "./interface-text.ts";
import { loopbackPlace, loopbackText } from "./loopback.ts";
import { networkPlace, networkText } from "./network.ts";
import type { Place, Wish } from "./place.ts";
import { tapPlace, tapText } from "./tap.ts";

/** Finds where an interface leads. Throws as its kind does: see the modules of this folder. */
export function findPlace(wish: Wish, snapshot: Snapshot): Place {
  const { wanted, field, was } = wish;
  switch (wanted.kind) {
    case undefined:
      return networkPlace(wanted.network, wanted, snapshot, field);
    case "bridge":
      return bridgePlace(wanted.bridge, wanted, snapshot, field);
    case "tap":
      return tapPlace(wanted.tap, snapshot, field, was !== undefined);
    case "loopback":
      return loopbackPlace;
    case "cni":
      return cniPlace(wanted.cni, wish);
    default:
      return assertNever(wanted);
  }
}

/** The text of a planned interface. */
export function interfaceText({ network, nic, tapKept, cni }: InterfacePlan): InterfaceText {
  if (nic === undefined) return loopbackText;
  if (tapKept === true) return tapText;
  if (cni !== undefined) return cniText;
  return network === undefined ? bridgeText : networkText;
}
