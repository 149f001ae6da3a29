import { statSync } from "node:fs";
import type { Ip } from "../../core/address.ts";
import { type HostDns, readHostDns, resolverFiles } from "../networks/host-dns.ts";

/**
 * The servers the host itself asks, read again when one of the files that name them is another one.
 */
export class HostServers {
  #stamp = "";
  #read: HostDns = { servers: [], search: [], options: [] };

  now(): readonly Ip[] {
    const stamp = resolverFiles.map(stampOf).join(" ");
    if (stamp !== this.#stamp) {
      this.#read = readHostDns();
      this.#stamp = stamp;
    }
    return this.#read.servers;
  }
}

function stampOf(path: string): string {
  try {
    const { ino, size, mtimeMs } = statSync(path);
    return `${ino}/${size}/${mtimeMs}`;
  } catch {
    return "none";
  }
}

export interface Upstreams {
  /** Servers of the network itself. */
  readonly network: readonly Ip[];
  /** Servers of the configuration, for networks without servers of their own. */
  readonly configured: readonly Ip[];
  readonly host: readonly Ip[];
  /** Where podnet itself listens: asking there leads nowhere. */
  readonly gateways: readonly Ip[];
}

/**
 * The servers for questions that podnet cannot answer: the nearest list that is not empty. A stub
 * of the host's on loopback is as good as any. Pure.
 */
export function upstreamsOf({ network, configured, host, gateways }: Upstreams): readonly Ip[] {
  const others = (servers: readonly Ip[]): Ip[] => servers.filter((ip) => !gateways.includes(ip));
  const [nearest = []] = [network, configured, host].map(others).filter(({ length }) => length > 0);
  return nearest.slice(0, 3);
}
