import { readRegular } from "../../linux/files/regular-file.ts";
import { type Ip, isIp, isLoopback, parseIp } from "../../core/address.ts";

/** The resolver settings of a machine, resolv.conf(5). */
export interface HostDns {
  readonly servers: readonly Ip[];
  readonly search: readonly string[];
  readonly options: readonly string[];
}

const ownFile = "/etc/resolv.conf";
/**
 * The files in which local resolvers on loopback keep their upstream servers: systemd-resolved
 * behind its 127.0.0.53, NetworkManager behind its dnsmasq, resolvconf behind Debian's dnsmasq.
 */
const filesBehind = [
  "/run/systemd/resolve/resolv.conf",
  "/run/NetworkManager/no-stub-resolv.conf",
  "/run/dnsmasq/resolv.conf",
] as const;

/** Every file that may name the host's servers. */
export const resolverFiles: readonly string[] = [ownFile, ...filesBehind];

/** Parses the text of resolv.conf; malformed lines are skipped, as resolvers do. */
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

/** The limit for the file's size, in bytes; a longer file counts as missing. */
const limit = 1024 * 1024;

function readIfThere(path: string): string | undefined {
  try {
    return readRegular(path, limit, { follow: true }).toString("utf8");
  } catch {
    return undefined;
  }
}
