import type { InterfaceSpec } from "../../../../api/pod-spec.ts";
import { type IfName, parseIfName } from "../../../../core/names.ts";
import { heldAddresses } from "./held-addresses.ts";
import type { InterfaceText } from "./interface-text.ts";
import type { Place } from "./place.ts";

/**
 * Addresses on the guest's own `lo`: no NIC, and the kernel's fixed MTU (drivers/net/loopback.c).
 */
export const loopbackPlace: Place = {
  mtu: 65_536,
  title: "the guest's own lo",
  hasNic: false,
  keepsTap: false,
  guestName: parseIfName("lo"),
  addresses(wish, choice) {
    const addresses = heldAddresses(wish);
    choice.refusePooled(addresses, wish.field);
    return addresses;
  },
  gateways: () => [],
  planned: () => ({}),
};

/** Whether addresses of `lo` are asked for. */
export const isOfLoopback = ({ kind }: InterfaceSpec): boolean => kind === "loopback";

/** An interface of the spec, by its guest name; `lo` has no other. */
export const withGuestName = (each: InterfaceSpec, guestName: IfName): InterfaceSpec =>
  isOfLoopback(each) ? each : { ...each, guestName };

export const loopbackText: InterfaceText = {
  whither: () => "the guest's own lo",
  tap: () => "",
};
