import type { IpPrefix } from "../../../core/address.ts";
import type { GuestConfig, GuestDns } from "../../../guest-init/protocol/configure.ts";
import { offeredByPlugins } from "../interfaces/plan-taken.ts";
import { routesOf } from "../interfaces/plan-routes.ts";
import { planServers, sameServers } from "../interfaces/plan-servers.ts";
import { guestOf } from "./guest-of.ts";
import { plannedKind } from "../interfaces/kinds/kind-of.ts";
import { type PodPlan, staying, withNic } from "../store/pod-plan.ts";
import type { PodContents } from "../store/pod-row.ts";

/**
 * How long the guest waits for a NIC that is being plugged, milliseconds. Hot-plug takes some 30
 * ms, a loaded host seconds.
 */
export const nicWaitMs = 15_000;

/**
 * The guest's network as it is sent to the agent; clock and entropy are added at the moment of
 * sending. Pure.
 */
export function guestConfigOf({ plan, spec }: PodContents): GuestConfig {
  const { podId, name } = plan;
  const interfaces = staying(plan.interfaces);
  const dns = dnsOf({ plan, spec });
  return {
    requestId: podId,
    hostname: spec.hostname ?? name,
    ...(dns === undefined ? {} : { dns }),
    interfaces: withNic(interfaces).map((each) => ({
      mac: each.nic.mac,
      name: each.guestName,
      mtu: each.mtu,
      ...(plannedKind(each).taken?.noArp === true ? { noArp: true as const } : {}),
      addresses: each.addresses,
    })),
    ...loopbackPart(plan),
    routes: routesOf(plan),
    neighbours: interfaces.flatMap((each) => plannedKind(each).taken?.neighbours ?? []),
    waitMs: nicWaitMs,
  };
}

/**
 * Addresses of the guest's `lo`. A guest that has had some is sent an empty list to remove them;
 * any other guest keeps its `lo` as it is.
 */
function loopbackPart({ interfaces, hadLoopback }: PodPlan): { readonly loopback?: IpPrefix[] } {
  const loopback = staying(interfaces).filter(({ nic }) => nic === undefined);
  if (loopback.length === 0 && hadLoopback !== true) return {};
  return { loopback: loopback.flatMap(({ addresses }) => addresses) };
}

/**
 * The guest's name servers: those that CNI plugins offer a pod on none of podnet's networks, else
 * the planned ones, as far as its kind of guest can use them.
 */
function dnsOf({ plan, spec }: PodContents): GuestDns | undefined {
  const offered = offeredByPlugins(plan);
  const dns = offered === undefined ? plan.dns : planServers(spec, offered);
  return dns === undefined ? undefined : guestOf(plan).dns(dns);
}

/** Whether the guest asks the same servers in the same way in two states of a pod. */
export const asksAlike = (one: PodContents, other: PodContents): boolean =>
  sameServers(dnsOf(one), dnsOf(other));
