import {
  type Cidr,
  familyOf,
  type IpPrefix,
  ipFromBigInt,
  ipOf,
  ipToBigInt,
  lengthOf,
  networkOf,
  parseIpPrefix,
  withLength,
} from "../../core/address.ts";
import { readable } from "./config.ts";
import type { Subnets } from "./key.ts";

/** The content of flannel's `subnet.env`, for programs on the host. */
export interface SubnetEnv {
  readonly networks: { readonly v4: Cidr | undefined; readonly v6: Cidr | undefined };
  readonly subnets: Subnets;
  readonly mtu: number;
  readonly masquerade: boolean;
}

/** The host's own address in its subnet: the first after the base. */
const hostIn = (subnet: Cidr): IpPrefix =>
  withLength(ipFromBigInt(familyOf(subnet), ipToBigInt(ipOf(subnet)) + 1n), lengthOf(subnet));

/** The file, line by line as flannel writes it. */
export function subnetEnvText({ networks, subnets, mtu, masquerade }: SubnetEnv): string {
  const lines = [
    networks.v4 && `FLANNEL_NETWORK=${networks.v4}`,
    subnets.v4 && `FLANNEL_SUBNET=${hostIn(subnets.v4)}`,
    networks.v6 && `FLANNEL_IPV6_NETWORK=${networks.v6}`,
    subnets.v6 && `FLANNEL_IPV6_SUBNET=${hostIn(subnets.v6)}`,
    `FLANNEL_MTU=${mtu}`,
    `FLANNEL_IPMASQ=${masquerade}`,
  ];
  return lines.flatMap((line) => (line === undefined ? [] : [`${line}\n`])).join("");
}

/**
 * The content of a former `subnet.env`. Each part is parsed by itself, because half of it is still
 * useful.
 */
export interface FormerSubnet {
  readonly networks: SubnetEnv["networks"];
  /** Undefined when the file names no subnet. */
  readonly subnets: Subnets | undefined;
}

/** Reads a `subnet.env` that flannel or podnet left behind. Other lines are skipped. */
export function parseSubnetEnv(text: string): FormerSubnet {
  const values = new Map<string, string>();
  for (const line of text.split("\n")) {
    const at = line.indexOf("=");
    if (at > 0) values.set(line.slice(0, at).trim(), line.slice(at + 1).trim());
  }
  const network = (name: string, family: 4 | 6): Cidr | undefined => {
    const prefix = readable(() => parseIpPrefix(values.get(name) ?? ""));
    return prefix !== undefined && familyOf(prefix) === family ? networkOf(prefix) : undefined;
  };
  const v4 = network("FLANNEL_SUBNET", 4);
  const v6 = network("FLANNEL_IPV6_SUBNET", 6);
  return {
    networks: {
      v4: network("FLANNEL_NETWORK", 4),
      v6: network("FLANNEL_IPV6_NETWORK", 6),
    },
    subnets: v4 !== undefined ? { v4, v6 } : v6 && { v4, v6 },
  };
}
