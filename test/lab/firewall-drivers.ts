import { PodnetError } from "../../core/errors.ts";
import type { Nftables } from "../../linux/nftables/libnftables.ts";
import type { HostNetworkOptions } from "../../network/bridge/host-network.ts";
import type { HostKernel } from "../../network/kernel/kernel.ts";

/** One way of writing the host's rules, and how it is asked for. */
export interface DriverUnderTest {
  readonly name: string;
  readonly options: Pick<HostNetworkOptions, "iptables" | "firewall">;
  /** What it sees of the kernel; absent: all of it. */
  readonly kernel?: (real: HostKernel) => HostKernel;
}

/** All of them: what test/kernel/firewall-*.test.ts holds of one, it holds of each. */
export const driversUnderTest: readonly DriverUnderTest[] = [
  { name: "iptables-nft", options: { iptables: "nft" } },
  { name: "iptables-legacy", options: { iptables: "legacy" } },
  { name: "nftables", options: { firewall: "nftables", iptables: "auto" } },
];

/** Without libnftables, iptables alone has all rules, those of published ports included. */
export const chainsAlone: DriverUnderTest = {
  name: "iptables-nft alone",
  options: { iptables: "nft" },
  kernel: (real) => ({
    ...real,
    nftables: {
      ...real.nftables,
      open() {
        const details = { errno: "ENOENT" };
        throw new PodnetError("FIREWALL_FAILED", "libnftables cannot be loaded", { details });
      },
    },
  }),
};

/** A kernel that refuses one table: it lacks something that only this table needs. */
export const refusing =
  (table: string) =>
  (real: HostKernel): HostKernel => {
    const open = (): Nftables => {
      const nftables = real.nftables.open();
      return {
        commit: async (name, commands) => {
          if (!commands.includes(`add table ${table}\n`)) return nftables.commit(name, commands);
          const details = { nft: "Error: Could not process rule: Operation not supported" };
          throw new PodnetError("FIREWALL_FAILED", "nftables refuses it", { details });
        },
        change: (...args) => nftables.change(...args),
        list: (...args) => nftables.list(...args),
        get: (...args) => nftables.get(...args),
        close: () => nftables.close(),
      };
    };
    return { ...real, nftables: { ...real.nftables, open } };
  };
