import type { GuestConfig } from "../../../guest-init/protocol/configure.ts";
import { type InterfacePlan, withNic } from "../store/pod-plan.ts";

/**
 * cloud-init sets up the network of a new instance alone, unless it is asked otherwise: what a pod is given while it runs
 * would not be there any more once it was stopped and started. User data that say something of their own about it prevail.
 */
export const eachBoot = `#cloud-config\n${JSON.stringify({ updates: { network: { when: ["boot-new-instance", "boot"] } } })}\n`;

/**
 * An interface's name among what netplan configures. Of two files that fit an interface networkd takes the first by name,
 * and Debian's images have `all-en` and `all-eth`, which ask by DHCP: digits come before them.
 */
const netplanName = (guestName: string): string => `0-${guestName}`;

/** The network of a guest without an agent ("Networking config Version 2"). */
export function networkConfig(
  { routes, dns }: GuestConfig,
  interfaces: readonly InterfacePlan[],
): object {
  const ethernets = withNic(interfaces).map(({ nic, guestName, addresses, mtu, network }) => {
    // Where somebody else answers, the guest asks.
    const asks = addresses.length === 0 && network === undefined;
    const own = routes.filter((route) => route.interface === guestName);
    return [
      netplanName(guestName),
      {
        match: { macaddress: nic.mac },
        "set-name": guestName,
        mtu,
        dhcp4: asks,
        dhcp6: asks,
        "accept-ra": asks,
        ...(addresses.length === 0 ? {} : { addresses }),
        ...(own.length === 0
          ? {}
          : {
              routes: own.map(({ destination, gateway, metric }) => ({
                to: destination,
                ...(gateway === undefined ? { scope: "link" } : { via: gateway }),
                ...(metric === undefined ? {} : { metric }),
              })),
            }),
        ...(addresses.length === 0 || dns === undefined
          ? {}
          : { nameservers: { addresses: dns.servers, search: dns.search } }),
      },
    ] as const;
  });
  return { version: 2, ethernets: Object.fromEntries(ethernets) };
}
