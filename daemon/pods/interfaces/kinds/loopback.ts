import type { InterfaceSpec } from "../../../../api/pod-spec.ts";
import { contains, ipOf } from "../../../../core/address.ts";
import { PodnetError } from "../../../../core/errors.ts";
import { type IfName, parseIfName } from "../../../../core/names.ts";
import { heldAddresses } from "./held-addresses.ts";
import type { PlannedKind } from "./planned-kind.ts";
import type { InterfaceKind, Planning } from "./kind.ts";

/**
 * Addresses on the guest's own `lo`: no NIC, and the kernel's fixed MTU (drivers/net/loopback.c).
 * Throws `ADDRESS_INVALID` for a network's address: a guest answers for addresses of its `lo` on
 * every link, and another pod could have such an address, or get it.
 */
export function loopbackKind(request: InterfaceSpec, planning: Planning): InterfaceKind {
  const addresses = heldAddresses(request, planning);
  for (const { name, subnets } of planning.snapshot.networks)
    for (const address of addresses) {
      const subnet = subnets.find(({ cidr }) => contains(cidr, ipOf(address)));
      if (subnet === undefined) continue;
      throw new PodnetError(
        "ADDRESS_INVALID",
        `Address ${ipOf(address)} is of network "${name}" (${subnet.cidr})`,
        {
          field: `${planning.field}.address`,
          hint: "Give lo an address of no network of podnet's, or ask for this one on an interface of that network",
        },
      );
    }
  return {
    title: "the guest's own lo",
    mtu: 65_536,
    hasNic: false,
    guestName: parseIfName("lo"),
    part: { addresses },
  };
}

/** Whether addresses of `lo` are asked for. */
export const isOfLoopback = ({ kind }: InterfaceSpec): boolean => kind === "loopback";

/** An interface of the spec, by its guest name; `lo` has no other. */
export const withGuestName = (each: InterfaceSpec, guestName: IfName): InterfaceSpec =>
  isOfLoopback(each) ? each : { ...each, guestName };

export const loopbackPlanned: PlannedKind = {
  whither: () => "the guest's own lo",
  tap: () => "",
};
