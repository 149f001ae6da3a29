import { ipRangeText } from "../core/ip-range.ts";
import { printable } from "../core/names.ts";
import { domainText } from "./domain.ts";
import type { Peers, Policy, Rule, Service } from "./model.ts";
import type { Requirement } from "./selector.ts";

/** The rules of a policy for people, a line each, in the order in which they are asked. Pure. */
export const policyLines = (policy: Policy): string[] =>
  (["egress", "ingress"] as const).flatMap((direction) => {
    const { rules, default: otherwise } = policy[direction] ?? {};
    if (rules === undefined) return [];
    const place = `${policy.name} ${direction}`;
    return [...rules.map((rule) => `${place} ${ruleText(rule)}`), `${place} default: ${otherwise}`];
  });

function ruleText({ name, action, reason, peers, services }: Rule): string {
  const words = [
    action,
    ...(peers === undefined ? [] : [peersText(peers)]),
    ...(services === undefined ? [] : [services.map(serviceText).join(", ")]),
    ...(reason === "" ? [] : [`(${reason})`]),
  ];
  return `${name}: ${words.join(" ")}`;
}

const peersText = ({ ranges, domains, pods }: Peers): string =>
  [
    ...ranges.map(ipRangeText),
    ...domains.map(domainText),
    ...pods.map(({ labels, namespace }) => {
      const conditions = [...labels, ...namespace].map(requirementText);
      return `pods with ${conditions.length === 0 ? "any labels" : conditions.join(" and ")}`;
    }),
  ].join(", ");

const requirementText = (requirement: Requirement): string =>
  printable(
    "values" in requirement
      ? `${requirement.key} ${requirement.operator} ${requirement.values.join("|")}`
      : `${requirement.key} ${requirement.operator}`,
  );

function serviceText({ protocol, ports }: Service): string {
  if (ports === undefined) return protocol;
  const { first, last } = ports;
  return `${protocol} ${first === last ? first : `${first}-${last}`}`;
}
