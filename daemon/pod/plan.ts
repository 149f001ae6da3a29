import type { PodSpec } from "../../api/pod-spec.ts";
import { isLoopback } from "../../core/address.ts";
import { PodnetError } from "../../core/errors.ts";
import { type PodName, parsePodName } from "../../core/names.ts";
import type { GuestConfig, GuestDns } from "../../guest-init/protocol/configure.ts";
import type { VmPlan } from "../../hypervisor/driver.ts";
import type { PodFragment } from "../../network/desired.ts";
import { podMark } from "../../network/ownership.ts";
import { planVm } from "./plan-boot.ts";
import { planInterfaces } from "./plan-interfaces.ts";
import { planRoutes } from "./plan-routes.ts";
import { type InterfacePlan, type PodPlan, planVersion } from "./pod-plan.ts";
import type { Snapshot } from "./snapshot.ts";

/** How long the guest waits for a NIC that is being plugged. Hot-plug takes some 30 ms, a loaded host seconds. */
const nicWaitMs = 15_000;

/** The name a pod gets that asks for none. */
export const defaultPodName = (podId: string): PodName => parsePodName(`pod-${podId.slice(0, 6)}`);

/**
 * Decides everything about a new pod, without effect: the same spec and snapshot give the same plan.
 * `describe` is the driver's pure rendering of the command line.
 *
 * Throws the first thing wrong with what was asked: `NAME_IN_USE`, `ADDRESS_*`, `MAC_IN_USE`, `GATEWAY_CONFLICT`,
 * `MTU_OUT_OF_RANGE`, `BRIDGE_FULL`, `NIC_SLOTS_FULL`, `IMAGE_*`, `MEMORY_TOO_SMALL`, `NETWORK_NOT_FOUND`,
 * `POOL_EXHAUSTED`, `INVALID_ARGUMENT`.
 */
export function planPod(
  spec: PodSpec,
  snapshot: Snapshot,
  describe: (vm: VmPlan) => readonly string[],
): PodPlan {
  const name = spec.name ?? defaultPodName(snapshot.podId);
  if (snapshot.nameHolder !== undefined) {
    throw new PodnetError(
      "NAME_IN_USE",
      `Pod name "${name}" is taken by pod ${snapshot.nameHolder}`,
      {
        field: "name",
        hint: `Choose another name, or delete that pod: podnet delete ${name}`,
        details: { holder: snapshot.nameHolder },
      },
    );
  }
  const vm = planVm(spec, snapshot);
  const interfaces = planInterfaces(spec, snapshot);
  return {
    version: planVersion,
    podId: snapshot.podId,
    name,
    vm,
    argv: describe(vm),
    interfaces,
    ports: portsOf(interfaces, snapshot),
    guest: guestOf(spec, name, interfaces, snapshot),
  };
}

function portsOf(interfaces: readonly InterfacePlan[], snapshot: Snapshot): PodFragment {
  return {
    kind: "pod",
    key: snapshot.podId,
    ports: interfaces.map((each) => {
      const network = snapshot.networks.find(({ name }) => name === each.network);
      return {
        tap: each.nic.tap,
        bridge: each.bridge,
        guestMac: each.nic.mac,
        guestAddresses: each.addresses,
        alias: podMark(snapshot.podId, each.position),
        isolated: network?.isolated ?? false,
        // The network's, not the interface's: a port below the bridge's MTU would make it drop what other pods may send.
        mtu: network?.mtu ?? each.mtu,
      };
    }),
  };
}

function guestOf(
  spec: PodSpec,
  name: PodName,
  interfaces: readonly InterfacePlan[],
  snapshot: Snapshot,
): GuestConfig {
  return {
    requestId: snapshot.podId,
    hostname: spec.hostname ?? name,
    dns: dnsOf(spec, snapshot),
    interfaces: interfaces.map((each) => ({
      mac: each.nic.mac,
      name: each.guestName,
      mtu: each.mtu,
      addresses: each.addresses,
    })),
    routes: planRoutes(spec, interfaces),
    neighbours: [],
    waitMs: nicWaitMs,
  };
}

/**
 * Servers nobody named are the host's, also beside search domains and options that were. A nameserver on loopback is
 * the host's own stub; in a guest that address is the guest itself.
 */
function dnsOf(spec: PodSpec, snapshot: Snapshot): GuestDns {
  const { search, options } = spec.dns ?? snapshot.dns;
  const named = spec.dns?.servers ?? [];
  const servers = (named.length > 0 ? named : snapshot.dns.servers)
    .filter((server) => !isLoopback(server))
    // resolv.conf(5): three servers are asked at most.
    .slice(0, 3);
  return { servers, search, options };
}
