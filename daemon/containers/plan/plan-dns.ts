import type { CniConfig } from "../../../cni/protocol/config.ts";
import { ipOf } from "../../../core/address.ts";
import type { AttachmentDns } from "../attachment-plan.ts";
import type { AttachmentSnapshot } from "./snapshot.ts";

/**
 * A container's name servers: those that its runtime or its configuration names, else the
 * network's: its gateways where they answer for names of pods, or its servers. An empty result
 * leaves the choice to the runtime. Pure.
 */
export function planDns(
  { capabilities, dns }: Pick<CniConfig, "capabilities" | "dns">,
  { network, subnets, domain }: AttachmentSnapshot,
): AttachmentDns {
  const named = capabilities.dns ?? dns;
  if (named !== undefined) return named;
  const gateways = subnets.map(({ gateway }) => ipOf(gateway));
  return {
    nameservers: domain === undefined ? network.dns : gateways,
    search: [...(domain === undefined ? [] : [domain]), ...network.dnsSearch],
    options: [],
  };
}
