import type { SeedPlan, VmPlan } from "../../../hypervisor/driver.ts";
import type { GuestConfig } from "../../../guest-init/protocol/configure.ts";
import { guestConfigOf } from "../guest/guest-config.ts";
import { type InterfacePlan, staying, withNic } from "../store/pod-plan.ts";
import type { PodContents } from "../store/pod-row.ts";

/** The machine as its driver starts it: with the seed disk, whose contents follow the guest's network. Pure. */
export function machineOf(pod: PodContents): VmPlan {
  const seed = seedOf(pod);
  return { ...pod.plan.vm, ...(seed === undefined ? {} : { seed }) };
}

/**
 * What cloud-init finds (its documentation, "NoCloud" and "Networking config Version 2"): JSON, which is YAML. The
 * instance is the pod, whenever it starts: what is done once for an instance is done once for a pod. With an agent in
 * the guest the network is the agent's, and nothing is said of it. Undefined for a pod that asks for no such disk.
 */
export function seedOf(pod: PodContents): SeedPlan | undefined {
  const { podId, agent, interfaces } = pod.plan;
  const { cloudInit } = pod.spec.boot;
  if (cloudInit === undefined) return undefined;
  const guest = guestConfigOf(pod);
  const network =
    agent === "none" ? networkConfig(guest, staying(interfaces)) : { config: "disabled" };
  return {
    volume: "cidata",
    files: {
      "meta-data": `${JSON.stringify({ "instance-id": podId, "local-hostname": guest.hostname })}\n`,
      "user-data": cloudInit.userData,
      ...(agent === "none" ? { "vendor-data": eachBoot } : {}),
      "network-config": `${JSON.stringify(network)}\n`,
    },
  };
}

/**
 * cloud-init sets up the network of a new instance alone, unless it is told otherwise: what a pod is given while it runs
 * would not be there any more once it was stopped and started. User data that say something of their own about it prevail.
 */
const eachBoot = `#cloud-config\n${JSON.stringify({ updates: { network: { when: ["boot-new-instance", "boot"] } } })}\n`;

/**
 * An interface's name among what netplan configures. Of two files that fit an interface networkd takes the first by name,
 * and Debian's images have `all-en` and `all-eth`, which ask by DHCP: digits come before them.
 */
const netplanName = (guestName: string): string => `0-${guestName}`;

function networkConfig({ routes, dns }: GuestConfig, interfaces: readonly InterfacePlan[]): object {
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
