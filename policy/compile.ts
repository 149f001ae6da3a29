import { type Ip, parseCidr } from "../core/address.ts";
import { type IpRange, parseIpRange } from "../core/ip-range.ts";
import { metadata4, metadata6 } from "../core/special-addresses.ts";
import type { DomainPattern } from "./domain.ts";
import type { Action, Peers, Policy, Rules, Service } from "./model.ts";
import { merged } from "./ranges.ts";
import { isTarget, type PodFacts, type PodSelector, selects } from "./selector.ts";

/** One decision: what it matches, what becomes of the flow, and why. Plain JSON. */
export interface Entry {
  /** The policy's name; `podnet` for what every pod has. */
  readonly policy: string;
  readonly rule: string;
  readonly reason: string;
  readonly verdict: Action | "resolver";
  /** Absent: every other side. */
  readonly to?: { readonly ranges: readonly IpRange[]; readonly domains: readonly DomainPattern[] };
  /** Absent: every protocol and port. */
  readonly services?: readonly Service[];
}

/** What decides about flows of one direction: the first entry that matches, else `otherwise`. */
export interface DecisionList {
  readonly entries: readonly Entry[];
  readonly otherwise: Omit<Entry, "to" | "services">;
}

/** What decides about a pod's flows. Plain JSON. */
export interface Decisions {
  readonly egress: DecisionList;
  readonly ingress: DecisionList;
}

/** What surrounds a pod. */
export interface Surroundings {
  /** The pods and containers that rules may choose by label. */
  readonly pods: readonly PodFacts[];
  /** Addresses of the host itself, its gateways among them. */
  readonly host: readonly Ip[];
  /** What the host serves to the pod: names, leases, echoes, and ports that its networks open. */
  readonly hostServices: readonly Service[];
  /** One of the pod's networks lets it reach the cloud's metadata. */
  readonly cloudMetadata: boolean;
}

/** Rules of podnet that are there where names decide. */
export const nameFloor: readonly string[] = ["resolver", "encrypted-dns"];

/** The name under which decisions stand that no policy makes. */
const builtIn = "podnet";

/** DNS over TLS (RFC 7858) and over QUIC (RFC 9250). */
const encryptedDns = 853;
const plainDns = 53;

/**
 * Makes the decisions for a pod from its policies, in order: those it names, then those of its
 * networks, then those that choose it by label. Their rules stand one after the other; a flow that
 * none matches is denied when one of the policies denies by default. First of all comes the floor,
 * which no rule removes. Pure.
 */
export const compile = (policies: readonly Policy[], surroundings: Surroundings): Decisions => ({
  egress: {
    entries: [
      ...egressFloor(surroundings),
      ...resolverOnly(policies),
      ...entriesOf(policies, "egress", surroundings.pods),
    ],
    otherwise: otherwiseOf(policies, "egress"),
  },
  ingress: {
    entries: [...ingressFloor(surroundings), ...entriesOf(policies, "ingress", surroundings.pods)],
    otherwise: otherwiseOf(policies, "ingress"),
  },
});

type Direction = "egress" | "ingress";

const entriesOf = (
  policies: readonly Policy[],
  direction: Direction,
  pods: readonly PodFacts[],
): readonly Entry[] =>
  policies.flatMap((policy) =>
    (policy[direction]?.rules ?? []).map(
      ({ name, reason, action, peers, services }): Entry => ({
        policy: policy.name,
        rule: name,
        reason,
        verdict: action,
        ...(peers === undefined ? {} : { to: targets(peers, pods) }),
        ...(services === undefined ? {} : { services }),
      }),
    ),
  );

function otherwiseOf(policies: readonly Policy[], direction: Direction): DecisionList["otherwise"] {
  const speaking = policies.filter((policy) => policy[direction] !== undefined);
  const closing = speaking.find((policy) => policy[direction]?.default === "deny");
  const rule = "default";
  if (closing !== undefined)
    return { policy: closing.name, rule, reason: "no rule allows it", verdict: "deny" };
  const [first] = speaking;
  return first === undefined
    ? { policy: builtIn, rule, reason: "no policy applies", verdict: "allow" }
    : { policy: first.name, rule, reason: "no rule denies it", verdict: "allow" };
}

/** The policies of a pod, by what chooses it: names first, then labels. */
export const policiesOf = (
  pod: PodFacts,
  named: readonly Policy[],
  all: readonly Policy[],
): readonly Policy[] => [
  ...named,
  ...all.filter(
    (policy) =>
      policy.appliesTo !== undefined &&
      !named.some(({ name }) => name === policy.name) &&
      isTarget(policy.appliesTo, pod),
  ),
];

/** Whether names decide about some of the flows. */
export const namesDecide = ({ entries }: DecisionList): boolean =>
  entries.some(({ to }) => (to?.domains.length ?? 0) > 0);

const hasDomains = (rules: Rules | undefined): boolean =>
  rules?.rules.some(({ peers }) => (peers?.domains.length ?? 0) > 0) ?? false;

const single = (ip: Ip): IpRange => ({ first: ip, last: ip });

function targets(peers: Peers, pods: readonly PodFacts[]): NonNullable<Entry["to"]> {
  const chosen = (selectors: readonly PodSelector[]): readonly PodFacts[] =>
    pods.filter((pod) => selectors.some((selector) => selects(selector, pod)));
  return {
    ranges: merged([
      ...peers.ranges,
      ...chosen(peers.pods).flatMap(({ addresses }) => addresses.map(single)),
    ]),
    domains: peers.domains,
  };
}

const floor = (rule: string, reason: string, verdict: Action): Omit<Entry, "to" | "services"> => ({
  policy: builtIn,
  rule,
  reason,
  verdict,
});

/** What closes encrypted DNS where names decide. */
export const encryptedDnsFloor = floor(
  "encrypted-dns",
  "encrypted DNS hides names from the policy",
  "deny",
);

function egressFloor({ host, hostServices, cloudMetadata }: Surroundings): readonly Entry[] {
  const own = { ranges: merged(host.map(single)), domains: [] };
  const metadata = merged([metadata4, ...metadata6].map((cidr) => parseIpRange(parseCidr(cidr))));
  return [
    ...(hostServices.length === 0
      ? []
      : [
          {
            ...floor("host-services", "the host serves it", "allow"),
            to: own,
            services: hostServices,
          },
        ]),
    { ...floor("host", "the host is closed to pods", "deny"), to: own },
    ...(cloudMetadata
      ? []
      : [
          {
            ...floor("metadata", "the cloud's metadata and keys are not for pods", "deny"),
            to: { ranges: metadata, domains: [] },
          },
        ]),
  ];
}

/** The host itself reaches its pods: health checks, published ports, `podnet exec`. */
const ingressFloor = ({ host }: Surroundings): readonly Entry[] => [
  {
    ...floor("host", "the host reaches its pods", "allow"),
    to: { ranges: merged(host.map(single)), domains: [] },
  },
];

/**
 * Where names decide, only the network's resolver may answer them: it alone notes which addresses
 * they have.
 */
function resolverOnly(policies: readonly Policy[]): readonly Entry[] {
  if (!policies.some(({ egress }) => hasDomains(egress))) return [];
  const at = (port: number): readonly Service[] =>
    (["tcp", "udp"] as const).map((protocol) => ({ protocol, ports: { first: port, last: port } }));
  return [
    {
      policy: builtIn,
      rule: "resolver",
      reason: "where names decide, the network's resolver answers",
      verdict: "resolver",
      services: at(plainDns),
    },
    {
      ...encryptedDnsFloor,
      services: at(encryptedDns),
    },
  ];
}
