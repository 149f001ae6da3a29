import { run } from "../../linux/processes/command.ts";
import { Rtnetlink } from "../../linux/netlink/rtnetlink-socket.ts";
import { observePorts } from "../../network/bridge/observe.ts";
import { openHostNetwork } from "../../network/bridge/open-host-network.ts";
import type { HostNetwork, HostNetworkOptions } from "../../network/bridge/host-network.ts";
import { ownNetns } from "../lab/netns.ts";
import { ip } from "../lab/network.ts";

export const { signal } = new AbortController();

export async function open(options: Partial<HostNetworkOptions> = {}): Promise<HostNetwork> {
  await ownNetns();
  return reopen(options);
}

export const reopen = (options: Partial<HostNetworkOptions> = {}): HostNetwork =>
  openHostNetwork({ iptables: "nft", chain: "HYPER", hostSeed: "test", ...options });

export interface IpLink {
  readonly ifname: string;
  readonly address: string;
  readonly mtu: number;
  readonly group: string;
  readonly ifalias?: string;
  readonly master?: string;
  readonly flags: readonly string[];
  readonly linkinfo?: {
    readonly info_kind?: string;
    readonly info_data?: { readonly stp_state: number; readonly group_fwd_mask: string };
    readonly info_slave_data?: { readonly isolated: boolean };
  };
}

/** A link as `ip` sees it: an independent reader that shares no code with ours. */
export const linkOf = async (name: string): Promise<IpLink | undefined> =>
  (JSON.parse(await ip("-d -j link show")) as IpLink[]).find((link) => link.ifname === name);

/** The ports that the network's bridge has. */
export async function portCount(): Promise<number> {
  using netlink = Rtnetlink.open();
  return observePorts(netlink, (await netlink.link("hyper0"))?.index ?? 0);
}

/** Links, addresses, routes and rules of others, in both variants of iptables. */
export async function seedForeign(): Promise<void> {
  const commands = [
    "link add name mine1 type veth peer name mine2",
    "link set dev mine1 alias podnetwork",
    "link set dev mine1 addrgenmode none",
    "link set dev mine2 addrgenmode none",
    "link add name theirs0 type bridge",
    "link set dev theirs0 addrgenmode none",
    "address add 10.77.0.1/24 dev theirs0",
    "address add fd77::1/64 dev theirs0 nodad",
    "link set dev mine2 master theirs0",
    "link set dev mine1 up",
    "link set dev mine2 up",
    "link set dev theirs0 up",
    "route add 203.0.113.0/24 via 10.77.0.2",
    "route add 198.51.100.0/24 via 10.77.0.3 proto 99 table 100",
    "neigh add 10.77.0.5 lladdr 52:54:00:aa:bb:cc dev theirs0 nud permanent",
  ];
  for (const command of commands) await ip(command);
  // The kernel reports a carrier from a work queue; what is compared later has to be at rest.
  for (let i = 0; i < 100 && !/state UP/.test(await ip("-o link show dev theirs0")); i++);
  const rules = `*filter
:INPUT ACCEPT [0:0]
:FORWARD DROP [0:0]
:OTHERS - [0:0]
-A FORWARD -i docker0 -m comment --comment "say \\"hi\\"" -j OTHERS
-A OTHERS -s 192.168.123.0/24 -j RETURN
COMMIT
*nat
:POSTROUTING ACCEPT [0:0]
-A POSTROUTING -s 192.168.123.0/24 -o theirs0 -j ACCEPT
COMMIT
`;
  for (const program of ["iptables-nft", "iptables-legacy", "ip6tables-nft"])
    await run([`${program}-restore`, "--noflush"], {
      stdin: program.startsWith("ip6")
        ? "*filter\n:FORWARD DROP [0:0]\n-A FORWARD -s fd77::/64 -j ACCEPT\nCOMMIT\n"
        : rules,
    });
}
