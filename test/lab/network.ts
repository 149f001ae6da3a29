import type { Cidr, Ip, IpPrefix, Mac } from "../../core/address.ts";
import type { IfName } from "../../core/names.ts";
import { run } from "../../linux/processes/command.ts";
import type {
  NetworkFragment,
  PodFragment,
  PublishedDesired,
} from "../../network/model/desired.ts";
import { podMark } from "../../network/model/ownership.ts";

/** The default network, as the daemon asks for it. */
export const networkFragment = (more: Partial<NetworkFragment> = {}): NetworkFragment => ({
  kind: "network",
  key: "default",
  bridge: "hyper0" as IfName,
  gateways: ["192.168.123.1/24" as IpPrefix],
  mtu: 1500,
  masquerade: ["192.168.123.0/24" as Cidr],
  firewall: true,
  chain: "HYPER",
  forward: true,
  ...more,
});

/** Port 80 of the default network's first pod, at port 8080 of every address of the host. */
export const publishedPort = (more: Partial<PublishedDesired> = {}): PublishedDesired => ({
  protocol: "tcp",
  hostPort: 8080,
  podIp: "192.168.123.2" as Ip,
  podPort: 80,
  count: 1,
  bridge: "hyper0" as IfName,
  subnet: "192.168.123.0/24" as Cidr,
  ...more,
});

/** A pod's id with a number in it. */
export const podIdOf = (n: number): string =>
  `pod${String(n)
    .padStart(9, "a")
    .replaceAll(/[0189]/g, (digit) => "wxyz"["0189".indexOf(digit)] as string)}`;

export interface PortOptions {
  readonly bridge?: string;
  readonly isolated?: boolean;
  readonly mtu?: number;
  readonly mac?: string;
  readonly address?: string;
}

/** A pod with one port: link `tapN`, address 192.168.123.N. */
export function podFragment(n: number, options: PortOptions = {}): PodFragment {
  const key = podIdOf(n);
  const port = {
    tap: `tap${n}` as IfName,
    bridge: (options.bridge ?? "hyper0") as IfName,
    guestMac: (options.mac ?? `52:54:00:00:01:${n.toString(16).padStart(2, "0")}`) as Mac,
    guestAddresses: [(options.address ?? `192.168.123.${n}/24`) as IpPrefix],
    alias: podMark(key, 0),
    isolated: options.isolated ?? false,
    mtu: options.mtu ?? 1500,
  };
  return { kind: "pod", key, ports: [port] };
}

/** Runs `ip` with words split at blanks. */
export const ip = async (command: string): Promise<string> =>
  (await run(["ip", ...command.split(" ")])).stdout;

/**
 * What of a host podnet must not change, as text: links, addresses, routes and rules of others.
 * Indexes and counters are left out; nothing else is.
 */
export async function foreignState(): Promise<string> {
  const parts = [
    await ip("-o link show"),
    await ip("-o address show"),
    await ip("route show table all"),
    await ip("neigh show"),
    (await run(["iptables-nft-save"])).stdout.replaceAll(/^#.*\n/gm, ""),
    (await run(["iptables-legacy-save"])).stdout.replaceAll(/^#.*\n/gm, ""),
    (await run(["ip6tables-nft-save"])).stdout.replaceAll(/^#.*\n/gm, ""),
    (await run(["sysctl", "-a", "-r", "^net\\.(ipv4|ipv6|bridge)\\."])).stdout,
  ];
  return parts
    .join("\n")
    .split("\n")
    .filter((line) => !/podnet:|HYPER|hyper0|^net\.netfilter\.nf_conntrack_count/.test(line))
    .map((line) => line.replaceAll(/\[\d+:\d+\]/g, "").replace(/^\d+: /, ""))
    .join("\n");
}

/**
 * Lines that only one of two texts has, marked - and +: what a failed comparison of hundreds of
 * lines should show.
 */
export function difference(before: string, after: string): string[] {
  const rest = after.split("\n");
  const gone = before.split("\n").filter((line) => {
    const at = rest.indexOf(line);
    if (at >= 0) rest.splice(at, 1);
    return at < 0;
  });
  return [...gone.map((line) => `- ${line}`), ...rest.map((line) => `+ ${line}`)];
}
