import { ipOf } from "../../core/address.ts";
import type { NetworkDefinition } from "../config/network-definition.ts";
import type { Asked } from "./facts.ts";

/**
 * What opens the host to a guest of a network, as the guard of the host has it
 * (`nftables/host-guard.ts`); undefined where it is closed. Pure.
 */
export function hostServes(
  { subnets, dns, hostAccess = [] }: NetworkDefinition,
  { ip, protocol, port }: Pick<Asked, "ip" | "protocol" | "port">,
): string | undefined {
  const servers = [...subnets.map(({ gateway }) => ipOf(gateway)), ...dns];
  if (hostAccess === "all") return "host_access all";
  if (protocol === "icmp") return "ping";
  if (port === 53 && protocol !== "sctp" && servers.some((server) => server === ip)) return "names";
  if (protocol === "udp" && (port === 67 || port === 547)) return "DHCP";
  return hostAccess.some(
    (open) =>
      open.protocol === protocol && port !== undefined && open.first <= port && port <= open.last,
  )
    ? "host_access"
    : undefined;
}
