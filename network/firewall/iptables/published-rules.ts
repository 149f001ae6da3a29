import { type Family, familyBits, familyOf, type Ip } from "../../../core/address.ts";
import type { LoopbackRedirect, PluggedFragment, PublishedDesired } from "../../model/desired.ts";
import { publishedMark } from "../../model/ownership.ts";
import { safeInterface } from "./network-rules.ts";
import { type Rule, ruleText } from "./rule.ts";

const host = (ip: Ip): string => `${ip}/${familyBits(familyOf(ip))}`;

/** Ports as iptables writes them in a match. */
const ports = (first: number, count: number): string =>
  count === 1 ? `${first}` : `${first}:${first + count - 1}`;

/**
 * The destination of a host's port. If host and pod ports are equal, the port is left alone, so
 * that it keeps its number whatever else changes; others are shifted, each by an equal amount
 * (`80-82/8000`: 8000 to 80, 8001 to 81).
 */
function destination({ podIp, hostPort, podPort, count }: PublishedDesired): string {
  if (hostPort === podPort) return podIp;
  const address = familyOf(podIp) === 4 ? podIp : `[${podIp}]`;
  return count === 1
    ? `${address}:${podPort}`
    : `${address}:${podPort}-${podPort + count - 1}/${hostPort}`;
}

/**
 * The rules of one family for a pod's published ports. nat translates; filter accepts only
 * translated connections, so that the port is not reachable by a route to the pod's own address.
 * Connections from the pod's own network are masqueraded: otherwise the pod would answer directly,
 * from an address that the client did not connect to. Connections that other programs on this host
 * translate are accepted for the addresses that take them. A loopback port is redirected where this
 * host sends to it, so that no packet is routed with a loopback address (`route_localnet` stays
 * off).
 */
export function publishedRules(pod: PluggedFragment, chain: string, family: Family): Rule[] {
  const ours = ["-m", "comment", "--comment", publishedMark(pod)];
  const translated = ["-m", "conntrack", "--ctstate", "DNAT"];
  const rules = (pod.published ?? [])
    .filter(({ podIp }) => familyOf(podIp) === family)
    .flatMap((published): Rule[] => {
      const { protocol, hostIp, hostPort, podIp, podPort, count, bridge, subnet } = published;
      const match = (first: number): string[] => {
        return ["-p", protocol, "-m", protocol, "--dport", ports(first, count)];
      };
      const asked = hostIp === undefined ? [] : ["-d", host(hostIp)];
      const to = ["-j", "DNAT", "--to-destination", destination(published)];
      const own = ["-s", subnet, "-d", host(podIp), "-o", safeInterface(bridge)];
      return [
        { table: "nat", chain, args: [...asked, ...match(hostPort), ...ours, ...to] },
        {
          table: "nat",
          chain: "POSTROUTING",
          args: [...own, ...translated, ...ours, "-j", "MASQUERADE"],
        },
        {
          table: "filter",
          chain,
          args: ["-d", host(podIp), ...match(podPort), ...translated, ...ours, "-j", "ACCEPT"],
        },
      ];
    });
  const taking = (pod.translated ?? [])
    .filter((ip) => familyOf(ip) === family)
    .map((ip): Rule => {
      const args = ["-d", host(ip), ...translated, ...ours, "-j", "ACCEPT"];
      return { table: "filter", chain, args };
    });
  const redirected = (pod.loopback ?? [])
    .filter(({ hostIp }) => familyOf(hostIp) === family)
    .map((redirect) => redirectRule(redirect, ours));
  // Rules that several host ports share are written once.
  return [
    ...new Map([...rules, ...taking, ...redirected].map((rule) => [ruleText(rule), rule])).values(),
  ];
}

/** (In OUTPUT, REDIRECT leads to 127.0.0.1 or ::1: nf_nat_redirect.c, Linux 6.1.) */
function redirectRule(
  { protocol, hostIp, hostPort, toPort }: LoopbackRedirect,
  ours: readonly string[],
): Rule {
  const match = ["-d", host(hostIp), "-o", "lo", "-p", protocol, "-m", protocol];
  const to = ["-j", "REDIRECT", "--to-ports", `${toPort}`];
  const args = [...match, "--dport", `${hostPort}`, ...ours, ...to];
  return { table: "nat", chain: "OUTPUT", args };
}
