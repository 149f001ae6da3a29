/**
 * Writes the rules of the synthetic pods' published ports, in the network namespace it is started
 * in: `crowd-rules.ts DRIVER`.
 */
import { parseCidr, parseIp } from "../../../core/address.ts";
import { parseIfName } from "../../../core/names.ts";
import { openHostNetwork } from "../../../network/bridge/open-host-network.ts";
import type { FirewallName } from "../../../network/firewall/open.ts";
import { crowd, crowdAddress, crowdHostPort, crowdId } from "./crowd.ts";

const firewall = process.argv[2] as FirewallName;
await using network = openHostNetwork({ iptables: "auto", chain: "HYPER", firewall });
// All in the name of one of them: one commit.
await network.apply(
  {
    kind: "pod",
    key: crowdId(1),
    ports: [],
    published: crowd.map((n) => ({
      protocol: "tcp" as const,
      hostPort: crowdHostPort(n),
      podIp: parseIp(crowdAddress(n)),
      podPort: 80,
      count: 1,
      bridge: parseIfName("hyper0"),
      subnet: parseCidr("10.88.0.0/20"),
    })),
  },
  AbortSignal.timeout(120_000),
);
