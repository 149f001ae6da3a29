import { readRegular } from "../../linux/regular-file.ts";
import { type Ip, isIp, isLoopback, parseIp } from "../../core/address.ts";

/** The resolver settings of a machine, resolv.conf(5). */
export interface HostDns {
  readonly servers: readonly Ip[];
  readonly search: readonly string[];
  readonly options: readonly string[];
}

const ownFile = "/etc/resolv.conf";
/**
 * Where those who listen on loopback for the host keep the servers they ask themselves:
 * systemd-resolved behind its 127.0.0.53, NetworkManager behind its dnsmasq, resolvconf behind a
 * dnsmasq of Debian's.
 */
const filesBehind = [
  "/run/systemd/resolve/resolv.conf",
  "/run/NetworkManager/no-stub-resolv.conf",
  "/run/dnsmasq/resolv.conf",
] as const;

/** Every file that may name the host's servers. */
export const resolverFiles: readonly string[] = [ownFile, ...filesBehind];

/** Reads resolv.conf text; what is malformed is left out, as resolvers do. */
export function parseResolvConf(text: string): HostDns {
  const servers: Ip[] = [];
  let search: readonly string[] = [];
  const options: string[] = [];
  for (const line of text.split("\n")) {
    const [said = ""] = line.split(/[#;]/, 1);
    const [word, ...rest] = said.trim().split(/\s+/);
    const [first] = rest;
    // A zone names a link of the host: in the guest it means another one or none.
    if (word === "nameserver" && first !== undefined && isIp(first)) servers.push(parseIp(first));
    else if (word === "search" || word === "domain") search = rest;
    else if (word === "options") options.push(...rest);
  }
  return { servers, search: search.slice(0, 6), options: options.slice(0, 8) };
}

/**
 * The servers a guest can use: the host's own, or those behind its loopback stub. With neither, the
 * stub's address.
 */
export function readHostDns(read: (path: string) => string | undefined = readIfThere): HostDns {
  const own = parseResolvConf(read(ownFile) ?? "");
  if (own.servers.length === 0 || own.servers.some((server) => !isLoopback(server))) return own;
  for (const file of filesBehind) {
    const behind = parseResolvConf(read(file) ?? "");
    if (behind.servers.some((server) => !isLoopback(server))) return behind;
  }
  return own;
}

/** Longest such a file may be, bytes; a longer one counts as none. */
const limit = 1024 * 1024;

function readIfThere(path: string): string | undefined {
  try {
    return readRegular(path, limit, { follow: true }).toString("utf8");
  } catch {
    return undefined;
  }
}
