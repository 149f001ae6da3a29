import type { PodSpec } from "../../../api/pod-spec.ts";
import { isLoopback } from "../../../core/address.ts";
import type { GuestDns } from "../../../guest-init/protocol/configure.ts";
import type { Snapshot } from "../plan/snapshot.ts";

/**
 * The name servers of a guest. A spec without servers gets those of its networks, or the host's,
 * also when it names search domains and options. A nameserver on loopback is the host's own stub;
 * in a guest that address is the guest itself.
 */
export function planServers({ dns }: Pick<PodSpec, "dns">, offered: Snapshot["dns"]): GuestDns {
  const named = dns?.servers ?? [];
  const { options } = dns ?? offered;
  // A spec with servers or search domains gets no others; a spec with options alone still finds
  // pods.
  const own = dns?.search ?? [];
  const domains = named.length > 0 || own.length > 0 ? [] : (offered.domains ?? []);
  const search = dns === undefined ? offered.search : [...domains, ...own];
  const servers = (named.length > 0 ? named : offered.servers)
    .filter((server) => !isLoopback(server))
    // resolv.conf(5): three servers are asked at most.
    .slice(0, 3);
  return { servers, search, options };
}

/** Whether two guests ask the same servers in the same way. */
export const sameServers = (one: GuestDns | undefined, other: GuestDns | undefined): boolean =>
  wordsOf(one) === wordsOf(other);

const wordsOf = (dns: GuestDns | undefined): string =>
  JSON.stringify([dns?.servers ?? [], dns?.search ?? [], dns?.options ?? []]);
