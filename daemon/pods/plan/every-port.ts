import type { PodFragment, PortDesired } from "../../../network/model/desired.ts";
import type { InterfacePlan, PodPlan } from "../store/pod-plan.ts";

/** The port an interface has, or had: none where the host has no part. Enough of it to take away what is left. */
export function portOf({ nic, bridge, addresses, mtu }: InterfacePlan): PortDesired[] {
  if (nic === undefined || bridge === undefined) return [];
  const { tap, mac: guestMac } = nic;
  return [{ tap, bridge, guestMac, guestAddresses: addresses, alias: "", isolated: false, mtu }];
}

/**
 * All the host may have of a pod: its ports, and those of interfaces that are being removed. A machine may end, or podnetd,
 * before their removal has come to its end.
 */
export function everyPort({ ports, interfaces }: PodPlan): PodFragment {
  const leaving = interfaces.filter((each) => each.leaving === true).flatMap(portOf);
  const kept = new Set(ports.ports.map(({ tap }) => tap));
  return { ...ports, ports: [...ports.ports, ...leaving.filter(({ tap }) => !kept.has(tap))] };
}
