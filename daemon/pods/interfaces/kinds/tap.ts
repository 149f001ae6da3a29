import type { InterfaceSpec } from "../../../../api/pod-spec.ts";
import { PodnetError } from "../../../../core/errors.ts";
import type { IfName } from "../../../../core/names.ts";
import type { NamedLink } from "../../../../network/model/observed.ts";
import { heldAddresses } from "./held-addresses.ts";
import type { PlannedKind } from "./planned-kind.ts";
import type { InterfaceKind, Planning } from "./kind.ts";

/**
 * Finds a tap that another program made and keeps. Throws `TAP_CONFLICT` when it cannot be used.
 */
export function tapKind(tap: IfName, request: InterfaceSpec, planning: Planning): InterfaceKind {
  const { field, was } = planning;
  const { links, tapHolders } = planning.snapshot;
  const link = links?.[tap];
  // Whether another pod has it is looked at with its name.
  const fault = tapFault(link, was !== undefined || tapHolders?.[tap] !== undefined);
  if (link === undefined || fault !== undefined)
    throw new PodnetError("TAP_CONFLICT", `Tap "${tap}" ${fault ?? ""}`, {
      field: `${field}.tap`,
      hint: "Make a persistent tap that nothing else has open: ip tuntap add dev NAME mode tap",
      details: { tap },
    });
  return {
    title: `tap "${tap}"`,
    mtu: link.mtu,
    hasNic: true,
    foreignTap: true,
    part: { tapKept: true, addresses: heldAddresses(request, planning) },
  };
}

/** Why a link is no tap that can be used and kept; undefined if it is. */
function tapFault(link: NamedLink | undefined, inUse: boolean): string | undefined {
  if (link === undefined) return "does not exist";
  if (link.kind !== "tap" || link.ours) return "is no foreign tap";
  if (link.persistent !== true) return "is not persistent: it would go with its user";
  if (link.multiQueue === true) return "has several queues, and a NIC of podnet's has one";
  if (link.carrier && !inUse) return "is in use by another process";
  return undefined;
}

/** Whether an interface is asked for by a tap that another program keeps. */
export const isByKeptTap = ({ kind }: InterfaceSpec): boolean => kind === "tap";

export const tapPlanned: PlannedKind = {
  whither: ({ nic }) => `tap ${nic?.tap ?? ""}, which is foreign`,
  tap: ({ nic }) => `tap ${nic.tap} as it is, and left there`,
  foreignTap: true,
};
