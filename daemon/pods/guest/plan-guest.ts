import type { GuestConfig } from "../../../guest-init/protocol/configure.ts";
import { type InterfacePlan, staying, withNic } from "../store/pod-plan.ts";

/** What of the interfaces the guest is told: its NICs, and the addresses of its own `lo` when it has some or had. */
export function guestInterfaces(
  interfaces: readonly InterfacePlan[],
): Pick<GuestConfig, "interfaces" | "loopback"> {
  const loopback = interfaces.filter(({ nic }) => nic === undefined);
  return {
    interfaces: withNic(staying(interfaces)).map((each) => ({
      mac: each.nic.mac,
      name: each.guestName,
      mtu: each.mtu,
      ...(each.cni?.taken?.noArp === true ? { noArp: true as const } : {}),
      addresses: each.addresses,
    })),
    ...(loopback.length === 0
      ? {}
      : { loopback: staying(loopback).flatMap(({ addresses }) => addresses) }),
  };
}
