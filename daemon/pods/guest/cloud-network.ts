import type { GuestConfig } from "../../../guest-init/protocol/configure.ts";
import { type InterfacePlan, withNic } from "../store/pod-plan.ts";

/**
 * cloud-init configures the network of a new instance only, unless user data asks for more. Without
 * this, interfaces added to a running pod would be missing after a stop and start. Network settings
 * in the user's own user data prevail.
 */
export const eachBoot = `#cloud-config\n${JSON.stringify({ updates: { network: { when: ["boot-new-instance", "boot"] } } })}\n`;

/**
 * The name of an interface in netplan's configuration. When two files match an interface, networkd
 * uses the first by name. Debian's images ship `all-en` and `all-eth`, which ask by DHCP: a leading
 * digit sorts before them.
 */
const netplanName = (guestName: string): string => `0-${guestName}`;

/** The network of a guest without an agent ("Networking config Version 2"). */
export function networkConfig(
  { routes, dns }: GuestConfig,
  interfaces: readonly InterfacePlan[],
): object {
  const ethernets = withNic(interfaces).map(({ nic, guestName, addresses, mtu, network }) => {
    // On foreign bridges another program answers DHCP, so the guest asks.
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
