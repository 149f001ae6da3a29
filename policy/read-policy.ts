import { parseIpRange } from "../core/ip-range.ts";
import { isDnsLabel, printable } from "../core/names.ts";
import { shown } from "../core/shown.ts";
import { parseDomainPattern } from "./domain.ts";
import { Node } from "./fields.ts";
import type { Peers, Policy, PortRange, Rule, Rules, Service } from "./model.ts";
import { protocols } from "./model.ts";
import { merged } from "./ranges.ts";
import { inNamespace, type PodSelector, type PolicyTarget, type Requirement } from "./selector.ts";

/** The most rules of a direction, and the most values of a list in a rule. */
export const mostRules = 500;
export const mostValues = 1000;
const longestReason = 200;

const ruleKeys = [
  "name",
  "reason",
  "action",
  "cidrs",
  "domains",
  "pods",
  "protocol",
  "ports",
] as const;

/**
 * Reads a policy from what a YAML or JSON file has, as README.md here shows it. Throws
 * `INVALID_ARGUMENT`, `UNKNOWN_FIELD` or `ADDRESS_INVALID`, each with the field, what was expected
 * and what to do.
 */
export function readPolicy(value: unknown): Policy {
  const file = new Node(value);
  const { name, applies_to, ...given } = file.object(["name", "applies_to", ...directionKeys]);
  const directions = directionsOf(file, given);
  return {
    name: nameOf(name ?? file.at("name")),
    ...(applies_to === undefined ? {} : { appliesTo: targetOf(applies_to) }),
    ...directions,
  };
}

/**
 * Reads what a policy file has without `name` and `applies_to`, from the place `path` in a file:
 * empty for the file itself. Throws as `readPolicy` does.
 */
export function readDirections(value: unknown, path: string): Directions {
  const node = new Node(value, path);
  return directionsOf(node, node.object(directionKeys));
}

type Direction = "egress" | "ingress";
type Directions = Pick<Policy, Direction>;

const directionKeys = ["default", "rules", "ingress"] as const;

function directionsOf(
  node: Node,
  { ingress, ...outgoing }: { readonly [key in (typeof directionKeys)[number]]?: Node },
): Directions {
  const isEgress = outgoing.default !== undefined || outgoing.rules !== undefined;
  if (!isEgress && ingress === undefined)
    throw node.wrong("complete: it has no rules", "Set default, rules or ingress");
  return {
    ...(isEgress ? { egress: rulesOf(outgoing, "egress") } : {}),
    ...(ingress === undefined
      ? {}
      : { ingress: rulesOf(ingress.object(["default", "rules"]), "ingress") }),
  };
}

function rulesOf(
  given: { readonly default?: Node; readonly rules?: Node },
  direction: Direction,
): Rules {
  const rules: Rule[] = [];
  const names = new Set<string>();
  for (const node of given.rules?.list(mostRules) ?? []) {
    const rule = ruleOf(node, direction);
    if (names.has(rule.name))
      throw node
        .at("name")
        .wrong("a name of its own", `Another rule is called ${rule.name}: rename one of them`);
    names.add(rule.name);
    rules.push(rule);
  }
  return { default: given.default?.word(["allow", "deny"]) ?? "deny", rules };
}

function ruleOf(node: Node, direction: Direction): Rule {
  const fields = node.object(ruleKeys);
  const peers = peersOf(fields, direction);
  const services = servicesOf(fields);
  return {
    name: nameOf(fields.name ?? node.at("name")),
    reason: reasonOf(fields.reason),
    action: (fields.action ?? node.at("action")).word(["allow", "deny"]),
    ...(peers === undefined ? {} : { peers }),
    ...(services === undefined ? {} : { services }),
  };
}

function nameOf(node: Node): string {
  if (node.value === undefined) throw node.wrong("there", "Give it a name, such as package-index");
  const name = node.text();
  if (isDnsLabel(name)) return name;
  throw node.wrong("a name", "Use 1 to 63 characters from a-z, 0-9 and -, none of - at an end");
}

/** People read it in answers and logs: one line, and nothing that hides or reverses text. */
function reasonOf(node: Node | undefined): string {
  const reason = node?.text(longestReason) ?? "";
  if (node !== undefined && shown(reason) !== reason)
    throw node.wrong("one line of plain text", "Leave line ends and invisible characters out");
  return reason;
}

function peersOf(
  { cidrs, domains, pods }: Partial<Record<(typeof ruleKeys)[number], Node>>,
  direction: Direction,
): Peers | undefined {
  if (cidrs === undefined && domains === undefined && pods === undefined) return undefined;
  if (direction === "ingress" && domains !== undefined)
    throw domains.wrong(
      "possible here: whoever opens a connection has no name",
      "Name the other side by cidrs or pods",
    );
  return {
    ranges: merged(cidrs?.list(mostValues, 1).map((each) => each.parsed(parseIpRange)) ?? []),
    domains: domains?.list(mostValues, 1).map((each) => each.parsed(parseDomainPattern)) ?? [],
    pods: pods === undefined ? [] : [selectorOf(pods.object(["labels", "without", "namespace"]))],
  };
}

/** A selector's fields, and `pods: [web, db], networks: [dmz]`. */
function targetOf(node: Node): PolicyTarget {
  const { pods, networks, ...selector } = node.object([
    "labels",
    "without",
    "namespace",
    "pods",
    "networks",
  ]);
  const texts = (list: Node): readonly string[] =>
    list.list(mostValues, 1).map((each) => each.text());
  return {
    ...selectorOf(selector),
    ...(pods === undefined ? {} : { pods: texts(pods) }),
    ...(networks === undefined ? {} : { networks: texts(networks) }),
  };
}

/** `{ labels: { app: db }, without: [tier], namespace: prod }`; `{}` chooses every pod. */
function selectorOf({
  labels,
  without,
  namespace,
}: {
  readonly labels?: Node;
  readonly without?: Node;
  readonly namespace?: Node;
}): PodSelector {
  const has = Object.entries(labels?.labels() ?? {}).map(
    ([key, value]): Requirement => ({ key, operator: "In", values: [value] }),
  );
  const lacks = (without?.list(mostValues, 1) ?? []).map(
    (each): Requirement => ({ key: each.text(), operator: "DoesNotExist" }),
  );
  const [both] = lacks.filter(({ key }) => has.some((one) => one.key === key));
  if (both !== undefined)
    throw (without as Node).wrong(
      `possible: labels has ${printable(both.key)}, too`,
      "Name each label in one of them: no pod has it and has it not",
    );
  return {
    labels: [...has, ...lacks],
    namespace: namespace === undefined ? [] : [inNamespace(nameOf(namespace))],
  };
}

/** Ports without a protocol are those of TCP and of UDP. */
function servicesOf({
  protocol,
  ports,
}: Partial<Record<(typeof ruleKeys)[number], Node>>): readonly Service[] | undefined {
  const named = protocol?.word(protocols);
  if (ports === undefined) return named === undefined ? undefined : [{ protocol: named }];
  if (named === "icmp")
    throw ports.wrong("possible here: ICMP has no ports", "Leave ports out, or set protocol: tcp");
  const ranges = ports.list(mostValues, 1).map(portsOf);
  return (named === undefined ? (["tcp", "udp"] as const) : [named]).flatMap((protocol) =>
    ranges.map((each) => ({ protocol, ports: each })),
  );
}

/** `443`, `"443"` or `8000-8100`. */
function portsOf(node: Node): PortRange {
  const { value } = node;
  const text = typeof value === "number" ? String(value) : node.text();
  const match = /^([0-9]{1,5})(?:-([0-9]{1,5}))?$/.exec(text);
  const first = Number(match?.[1]);
  const last = Number(match?.[2] ?? match?.[1]);
  if (match !== null && first >= 1 && first <= last && last <= 65_535) return { first, last };
  throw node.wrong(
    `a port or a range of ports: "${printable(text)}"`,
    "Write a number from 1 to 65535, or FIRST-LAST",
  );
}
