import type { PodSpec } from "../../../api/pod-spec.ts";
import { isLoopback } from "../../../core/address.ts";
import type { GuestDns } from "../../../guest-init/protocol/configure.ts";
import type { PodContents } from "../store/pod-row.ts";
import { planSeed } from "../plan/plan-seed.ts";
import { type PodPlan, staying } from "../store/pod-plan.ts";
import type { Snapshot } from "../plan/snapshot.ts";

/**
 * Whom a guest asks for names. Servers nobody named are those of its networks, or the host's, also beside search domains and
 * options that were. A nameserver on loopback is the host's own stub; in a guest that address is the guest itself.
 */
export function planServers({ dns }: Pick<PodSpec, "dns">, offered: Snapshot["dns"]): GuestDns {
  const named = dns?.servers ?? [];
  const { options } = dns ?? offered;
  // Who names servers or domains of its own gets nobody else's; who names options alone finds pods still.
  const own = dns?.search ?? [];
  const domains = named.length > 0 || own.length > 0 ? [] : (offered.domains ?? []);
  const search = dns === undefined ? offered.search : [...domains, ...own];
  const servers = (named.length > 0 ? named : offered.servers)
    .filter((server) => !isLoopback(server))
    // resolv.conf(5): three servers are asked at most.
    .slice(0, 3);
  return { servers, search, options };
}

/** A pod that is told what is offered now; itself where it is so already. A plain hyperstart is told once, at its start. Pure. */
export const withServers = (pod: PodContents, offered: Snapshot["dns"]): PodContents =>
  pod.plan.agent === "hyperstart" ? pod : withDns(pod, planServers(pod.spec, offered));

/** A pod that is told this. Pure. */
export function withDns(pod: PodContents, dns: GuestDns | undefined): PodContents {
  const { plan, spec } = pod;
  if (dns === undefined || sameServers(plan.guest.dns, dns)) return pod;
  const guest = { ...plan.guest, dns };
  const seed = planSeed(plan, spec, guest, staying(plan.interfaces));
  return { plan: { ...plan, guest, vm: { ...plan.vm, ...seed } }, spec };
}

/** Whether two states of a pod ask the same servers in the same way. */
export const asksAlike = ({ guest: one }: PodPlan, { guest: other }: PodPlan): boolean =>
  sameServers(one.dns, other.dns);

/** The same of what guests are told, or show. */
export const sameServers = (one: GuestDns | undefined, other: GuestDns | undefined): boolean =>
  wordsOf(one) === wordsOf(other);

const wordsOf = (dns: GuestDns | undefined): string =>
  JSON.stringify([dns?.servers ?? [], dns?.search ?? [], dns?.options ?? []]);
