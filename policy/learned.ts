import type { Ip } from "../core/address.ts";
import type { DomainName } from "./domain.ts";
import type { Protocol } from "./model.ts";
import { mostRules, mostValues } from "./read-policy.ts";

/** What a pod used for a while. */
export interface Used {
  /** Name of the pod or container. */
  readonly pod: string;
  /** Of a container's pod; absent for another one. */
  readonly namespace?: string;
  /** Names that it resolved or that its connections said, with the addresses that it was given. */
  readonly names: ReadonlyMap<DomainName, ReadonlySet<Ip>>;
  /** Where it opened connections to; the protocol's number in the IP header, absent for ICMP. */
  readonly flows: readonly {
    readonly address: Ip;
    readonly protocol?: number;
    readonly port?: number;
  }[];
}

/** A policy file, and whether the pod used more than fits into one. Plain JSON. */
export interface LearnedPolicy {
  readonly document: {
    readonly name: string;
    readonly applies_to: { readonly namespace?: string; readonly pods: readonly string[] };
    readonly default: "deny";
    readonly rules: readonly Readonly<Record<string, unknown>>[];
  };
  readonly more: boolean;
}

const numbers: ReadonlyMap<number, Protocol> = new Map([
  [6, "tcp"],
  [17, "udp"],
  [132, "sctp"],
]);
/** What leads to names: where names decide, the network's resolver alone answers. */
const dnsPorts: ReadonlySet<number> = new Set([53, 853]);
const namedPorts = [80, 443];
/** Of a policy's name: a label of DNS. */
const longestName = 63;

/** (Names of containers have other characters than those of policies.) */
const policyName = (pod: string): string =>
  `learned-${pod.toLowerCase().replace(/[^a-z0-9-]/g, "-")}`
    .slice(0, longestName)
    .replace(/-+$/, "");

/**
 * Makes a policy that allows what a pod used, and nothing else: names for connections whose name
 * decides, and addresses for all others. Pure.
 */
export function learnedPolicy({ pod, namespace, names, flows }: Used): LearnedPolicy {
  const answered = new Set([...names.values()].flatMap((addresses) => [...addresses]));
  const byName = ({ address, port = 0 }: Used["flows"][number]): boolean =>
    names.size > 0 && (dnsPorts.has(port) || (namedPorts.includes(port) && answered.has(address)));
  const groups = Map.groupBy(
    flows.filter((flow) => !byName(flow)),
    ({ protocol, port = 0 }) => {
      const name = protocol === undefined ? "icmp" : numbers.get(protocol);
      return name === undefined || name === "icmp" ? "icmp" : `${name}-${port}`;
    },
  );
  const byAddress = [...groups].map(([name, some]) => {
    const [protocol = "", port] = name.split("-");
    const cidrs = [...new Set(some.map(({ address }) => address))].toSorted();
    const ports = port === undefined ? {} : { ports: [Number(port)] };
    return { name, action: "allow", cidrs, protocol, ...ports };
  });
  const domains = [...names.keys()].toSorted();
  const named = { name: "names", action: "allow", domains, ports: namedPorts };
  // Where an address is to decide, its rule stands before those of names.
  const all = [
    ...byAddress.toSorted((one, other) =>
      one.name.localeCompare(other.name, "en", { numeric: true }),
    ),
    ...(domains.length === 0 ? [] : [named]),
  ];
  const rules = all.slice(-mostRules).map((rule) => ({
    ...rule,
    ...("cidrs" in rule
      ? { cidrs: rule.cidrs.slice(0, mostValues) }
      : { domains: rule.domains.slice(0, mostValues) }),
  }));
  const values = (some: readonly object[]): number => JSON.stringify(some).length;
  return {
    document: {
      name: policyName(pod),
      applies_to: { ...(namespace === undefined ? {} : { namespace }), pods: [pod] },
      default: "deny",
      rules,
    },
    more: values(rules) < values(all),
  };
}
