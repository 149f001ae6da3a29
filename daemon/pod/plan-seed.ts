import type { PodSpec } from "../../api/pod-spec.ts";
import type { PodId } from "../../core/names.ts";
import type { SeedPlan } from "../../hypervisor/driver.ts";
import type { GuestConfig } from "../../guest-init/protocol/configure.ts";
import { type InterfacePlan, type PodPlan, withNic } from "./pod-plan.ts";

/**
 * What cloud-init finds (its documentation, "NoCloud" and "Networking config Version 2"): JSON, which is YAML. The
 * instance is the pod, whenever it starts: what is done once for an instance is done once for a pod. With an agent in
 * the guest the network is the agent's, and nothing is said of it.
 */
export function planSeed(
  { podId, agent }: { readonly podId: PodId; readonly agent?: PodPlan["agent"] | undefined },
  { boot: { cloudInit } }: Pick<PodSpec, "boot">,
  guest: GuestConfig,
  interfaces: readonly InterfacePlan[],
): { readonly seed?: SeedPlan } {
  if (cloudInit === undefined) return {};
  const network = agent === "none" ? networkConfig(guest, interfaces) : { config: "disabled" };
  return {
    seed: {
      volume: "cidata",
      files: {
        "meta-data": `${JSON.stringify({ "instance-id": podId, "local-hostname": guest.hostname })}\n`,
        "user-data": cloudInit.userData,
        "network-config": `${JSON.stringify(network)}\n`,
      },
    },
  };
}

function networkConfig({ routes, dns }: GuestConfig, interfaces: readonly InterfacePlan[]): object {
  const ethernets = withNic(interfaces).map(({ nic, guestName, addresses, mtu, network }) => {
    // Where somebody else answers, the guest asks.
    const asks = addresses.length === 0 && network === undefined;
    const own = routes.filter((route) => route.interface === guestName);
    return [
      guestName,
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
