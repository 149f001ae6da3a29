import {
  type Cidr,
  type Ip,
  type IpPrefix,
  type Mac,
  isIp,
  parseCidr,
  parseIp,
  parseIpPrefix,
  parseMac,
} from "../../core/address.ts";
import { parseIfName } from "../../core/names.ts";
import type { GuestRoute, ObservedInterface } from "../protocol/configure.ts";

/** The value after a keyword in a line of words. */
function after(words: readonly string[], key: string): string | undefined {
  const at = words.indexOf(key);
  return at < 0 ? undefined : words[at + 1];
}

/** Undefined instead of an error: a line that cannot be read is a line that says nothing. */
function attempt<T>(parse: () => T): T | undefined {
  try {
    return parse();
  } catch {
    return undefined;
  }
}

/** Other names that a guest gives an interface are kept out of podnet's messages. */
const isName = (name: string): boolean => attempt(() => parseIfName(name)) !== undefined;

interface FoundLink {
  name: string;
  index: number;
  mtu: number;
  up: boolean;
  mac: Mac | undefined;
  addresses: IpPrefix[];
}

/**
 * Reads `ip addr`, busybox's and iproute2's alike: Ethernet interfaces and their global addresses.
 * Lines it does not know are passed over; text from a guest is never trusted to be well formed.
 */
export function parseIpAddr(text: string): ObservedInterface[] {
  const links: FoundLink[] = [];
  for (const line of text.split("\n")) {
    const head = /^(\d{1,9}): ([^:\s]{1,31}): <([A-Z0-9_,-]*)> mtu (\d{1,6})\b/.exec(line);
    if (head !== null) {
      const [, index = "", name = "", flags = "", mtu = ""] = head;
      links.push({
        // A peer's index follows the name: eth0@if3.
        name: name.replace(/@.*$/, ""),
        index: Number(index),
        mtu: Number(mtu),
        up: flags.split(",").includes("UP"),
        mac: undefined,
        addresses: [],
      });
      continue;
    }
    const link = links.at(-1);
    if (link === undefined) continue;
    const words = line.trim().split(/\s+/);
    if (words[0] === "link/ether") link.mac = attempt(() => parseMac(words[1] ?? ""));
    if ((words[0] === "inet" || words[0] === "inet6") && after(words, "scope") === "global") {
      const prefix = attempt(() => parseIpPrefix(words[1] ?? ""));
      if (prefix !== undefined) link.addresses.push(prefix);
    }
  }
  return links.flatMap(({ mac, ...rest }) =>
    mac === undefined || !isName(rest.name) ? [] : [{ ...rest, mac }],
  );
}

/** Reads `ip route`: IPv4 routes of the main table. */
export function parseIpRoute(text: string): GuestRoute[] {
  return text.split("\n").flatMap((line) => {
    const words = line.trim().split(/\s+/);
    const [dest = ""] = words;
    const name = after(words, "dev");
    const destination = attempt(() =>
      dest === "default" ? ("0.0.0.0/0" as Cidr) : parseCidr(isIp(dest) ? `${dest}/32` : dest),
    );
    if (destination === undefined || name === undefined || !isName(name)) return [];
    const via = after(words, "via");
    const gateway: Ip | undefined = via === undefined ? undefined : attempt(() => parseIp(via));
    const metric = Number(after(words, "metric") ?? Number.NaN);
    return [
      {
        destination,
        interface: name,
        ...(gateway === undefined ? {} : { gateway }),
        ...(Number.isSafeInteger(metric) ? { metric } : {}),
      },
    ];
  });
}
