import type { HostNetworkOptions } from "../../network/bridge/host-network.ts";

/** One way of writing the host's rules, and how it is asked for. */
export interface DriverUnderTest {
  readonly name: string;
  readonly options: Pick<HostNetworkOptions, "iptables" | "firewall">;
}

/** All of them: what test/kernel/firewall-*.test.ts holds of one, it holds of each. */
export const driversUnderTest: readonly DriverUnderTest[] = [
  { name: "iptables-nft", options: { iptables: "nft" } },
  { name: "iptables-legacy", options: { iptables: "legacy" } },
  { name: "nftables", options: { firewall: "nftables", iptables: "auto" } },
];
