import { familyOf, type Ip } from "../core/address.ts";
import { type Decision, decide } from "../policy/decide.ts";
import type { DomainName } from "../policy/domain.ts";
import type { PodEntry } from "./table.ts";

/** Where a connection was going: its destination before it came to the relay. */
export interface Destination {
  readonly ip: Ip;
  readonly port: number;
}

/** Where a connection goes, or why it does not. */
export interface Route {
  readonly decision: Decision;
  /** The address to dial; absent when it is denied. */
  readonly ip?: Ip;
}

/**
 * Decides where a connection goes that says a name, or none. An allowed name is reached at an
 * address that the resolver gave this pod for that very name, whatever the destination was, so that
 * names that share an address do not open each other. An address that a rule allows is reached as
 * it is. None of them is an address of this host, whose own processes reach more of it than pods
 * do. Pure but for the clock of the answers, and `isOwn`.
 */
export function routeOf(
  entry: PodEntry,
  to: Destination,
  name: DomainName | null,
  isOwn: (ip: Ip) => boolean,
): Route {
  const route = allowedRoute(entry, to, name);
  return route.ip !== undefined && isOwn(route.ip)
    ? { decision: { ...route.decision, ...theHost, verdict: "deny" } }
    : route;
}

const theHost = { policy: "podnet", rule: "host", reason: "the host is closed to pods" } as const;

function allowedRoute(entry: PodEntry, to: Destination, name: DomainName | null): Route {
  const { egress } = entry.pod;
  const flow = { protocol: "tcp", port: to.port, name } as const;
  const first = decide(egress, { ...flow, ip: to.ip });
  if (first.verdict !== "allow") return { decision: first };
  if (first.by === "address" || name === null) return { decision: first, ip: to.ip };
  const ip = nearest(entry.addressesOf(name), to.ip);
  if (ip === undefined)
    return {
      decision: { ...first, verdict: "deny", reason: "the resolver never gave it this name" },
    };
  // The name may lead to an address that is closed: the host, metadata, a network of a rule.
  const last = decide(egress, { ...flow, ip });
  return last.verdict === "allow" ? { decision: last, ip } : { decision: last };
}

/** The address itself when the name has it, else one of its family. */
const nearest = (addresses: readonly Ip[], wanted: Ip): Ip | undefined =>
  addresses.find((ip) => ip === wanted) ??
  addresses.find((ip) => familyOf(ip) === familyOf(wanted)) ??
  addresses[0];
