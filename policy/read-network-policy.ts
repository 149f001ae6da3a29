import { contains, familyOf, ipOf, lengthOf, networkOf, parseIpPrefix } from "../core/address.ts";
import { type IpRange, parseIpRange } from "../core/ip-range.ts";
import { printable } from "../core/names.ts";
import { Node } from "./fields.ts";
import type { Peers, Policy, PortRange, Rule, Rules, Service } from "./model.ts";
import { merged, without } from "./ranges.ts";
import { mostRules, mostValues } from "./read-policy.ts";
import { defaultNamespace, inNamespace, type PodSelector, type Requirement } from "./selector.ts";

const apiVersion = "networking.k8s.io/v1";

/** DNS subdomain names (RFC 1123), as Kubernetes calls its objects. */
const objectName =
  /^(?=.{1,253}$)[a-z0-9](?:[a-z0-9-]*[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]*[a-z0-9])?)*$/;
/** Label keys may have a prefix; values may be empty. Only their characters are looked at. */
const labelText = /^[A-Za-z0-9/._-]{0,317}$/;

/**
 * Reads NetworkPolicy objects of Kubernetes (networking.k8s.io/v1), one or a list of them. Their
 * rules only allow; a pod that a policy selects for a direction is closed in that direction but for
 * what the rules of all its policies allow. Fields that are not known are refused: one that is
 * passed over could have closed something. Throws as `readPolicy` does.
 */
export function readNetworkPolicies(value: unknown): readonly Policy[] {
  const file = new Node(value);
  const { kind } = file.anyObject();
  if (kind === "List" || kind === "NetworkPolicyList")
    return file.at("items").list(mostValues).map(networkPolicy);
  return [networkPolicy(file)];
}

/** Whether a file has objects of Kubernetes, rather than a policy of podnet's own. */
export const isKubernetesObject = (value: unknown): boolean =>
  typeof value === "object" && value !== null && "apiVersion" in value && "kind" in value;

function networkPolicy(node: Node): Policy {
  const fields = node.anyObject();
  node.at("apiVersion", fields).word([apiVersion]);
  node.at("kind", fields).word(["NetworkPolicy"]);
  const metadata = node.at("metadata", fields);
  const name = metadata.at("name").parsed(parseObjectName);
  const given = metadata.at("namespace");
  const namespace = given.value === undefined ? defaultNamespace : given.parsed(parseObjectName);
  const spec = node.at("spec", fields).object(["podSelector", "policyTypes", "ingress", "egress"]);
  const [ingress, egress] = [spec.ingress?.list(mostRules), spec.egress?.list(mostRules)];
  // Kubernetes 1.8: a policy without types is one of ingress, and of egress when it has such rules.
  const types = spec.policyTypes?.list(2).map((each) => each.word(["Ingress", "Egress"])) ?? [
    "Ingress",
    ...((egress ?? []).length > 0 ? ["Egress" as const] : []),
  ];
  const named = `${namespace}/${name}`;
  const rules = (list: readonly Node[] | undefined, direction: "ingress" | "egress"): Rules => ({
    default: "deny",
    rules: (list ?? []).map((rule, i) => ruleOf(rule, { direction, i, named, namespace })),
  });
  return {
    name: named,
    appliesTo: {
      labels: spec.podSelector === undefined ? [] : requirements(spec.podSelector),
      namespace: [inNamespace(namespace)],
    },
    ...(types.includes("Egress") ? { egress: rules(egress, "egress") } : {}),
    ...(types.includes("Ingress") ? { ingress: rules(ingress, "ingress") } : {}),
  };
}

function parseObjectName(text: string): string {
  if (objectName.test(text)) return text;
  throw new Node(text).wrong(
    `a name of Kubernetes: "${printable(text)}"`,
    "Use a-z, 0-9, - and dots, at most 253 characters",
  );
}

interface Place {
  readonly direction: "ingress" | "egress";
  readonly i: number;
  /** Namespace and name of the policy. */
  readonly named: string;
  readonly namespace: string;
}

function ruleOf(node: Node, { direction, i, named, namespace }: Place): Rule {
  const side = direction === "ingress" ? "from" : "to";
  const fields = node.object([side, "ports"]);
  const others = fields[side]?.list(mostValues) ?? [];
  const ports = fields.ports?.list(mostValues) ?? [];
  return {
    name: `${direction}-${i + 1}`,
    reason: `NetworkPolicy ${named}`,
    action: "allow",
    ...(others.length === 0 ? {} : { peers: peersOf(others, namespace) }),
    ...(ports.length === 0 ? {} : { services: ports.map(serviceOf) }),
  };
}

function peersOf(nodes: readonly Node[], own: string): Peers {
  const ranges: IpRange[] = [];
  const pods: PodSelector[] = [];
  for (const node of nodes) {
    const { ipBlock, podSelector, namespaceSelector } = node.object([
      "ipBlock",
      "podSelector",
      "namespaceSelector",
    ]);
    if (ipBlock !== undefined && podSelector === undefined && namespaceSelector === undefined)
      ranges.push(...blockOf(ipBlock));
    else if (ipBlock === undefined && (podSelector ?? namespaceSelector) !== undefined)
      pods.push({
        labels: podSelector === undefined ? [] : requirements(podSelector),
        // Without a namespaceSelector only the policy's own namespace is meant; an empty one
        // chooses them all.
        namespace:
          namespaceSelector === undefined ? [inNamespace(own)] : requirements(namespaceSelector),
      });
    else
      throw node.wrong(
        "a peer",
        "Write ipBlock alone, or podSelector, namespaceSelector or both of them",
      );
  }
  return { ranges: merged(ranges), domains: [], pods };
}

function blockOf(node: Node): readonly IpRange[] {
  const fields = node.object(["cidr", "except"]);
  const cidr = networkOf((fields.cidr ?? node.at("cidr")).parsed(parseIpPrefix));
  const except = (fields.except?.list(mostValues) ?? []).map((each) => {
    const inside = networkOf(each.parsed(parseIpPrefix));
    if (
      familyOf(inside) === familyOf(cidr) &&
      lengthOf(inside) > lengthOf(cidr) &&
      contains(cidr, ipOf(inside))
    )
      return parseIpRange(inside);
    throw each.wrong(`a part of ${cidr}`, "Name networks within the block's cidr, smaller than it");
  });
  return without(parseIpRange(cidr), except);
}

function serviceOf(node: Node): Service {
  const { protocol, port, endPort } = node.object(["protocol", "port", "endPort"]);
  const named = protocol?.word(["TCP", "UDP", "SCTP"]) ?? "TCP";
  const ports = port === undefined ? undefined : portsOf(port, endPort);
  if (port === undefined && endPort !== undefined)
    throw endPort.wrong("possible without port", "Write the first port in port");
  return {
    protocol: named.toLowerCase() as "tcp" | "udp" | "sctp",
    ...(ports === undefined ? {} : { ports }),
  };
}

function portsOf(port: Node, endPort: Node | undefined): PortRange {
  if (typeof port.value === "string")
    throw port.wrong(
      "a number, and podnet does not know the names of a pod's ports",
      "Write the port's number",
    );
  const first = portNumber(port);
  const last = endPort === undefined ? first : portNumber(endPort);
  if (first > last) throw (endPort ?? port).wrong("a last port", `Write ${first} or more`);
  return { first, last };
}

function portNumber(node: Node): number {
  const { value } = node;
  if (typeof value === "number" && Number.isInteger(value) && value >= 1 && value <= 65_535)
    return value;
  throw node.wrong("a port", "Write a number from 1 to 65535");
}

/** A LabelSelector. An empty one has no conditions. */
function requirements(node: Node): readonly Requirement[] {
  const { matchLabels, matchExpressions } = node.object(["matchLabels", "matchExpressions"]);
  const labels = Object.entries(matchLabels?.labels() ?? {}).map(
    ([key, value]): Requirement => ({ key, operator: "In", values: [value] }),
  );
  return [...labels, ...(matchExpressions?.list(mostValues) ?? []).map(requirement)];
}

function requirement(node: Node): Requirement {
  const fields = node.object(["key", "operator", "values"]);
  const key = labelOf(fields.key ?? node.at("key"));
  const operator = (fields.operator ?? node.at("operator")).word([
    "In",
    "NotIn",
    "Exists",
    "DoesNotExist",
  ]);
  const values = fields.values?.list(mostValues).map(labelOf) ?? [];
  const wantsValues = operator === "In" || operator === "NotIn";
  if (wantsValues !== values.length > 0)
    throw node.wrong(
      `a condition: ${operator} ${wantsValues ? "needs" : "has no"} values`,
      wantsValues ? "Name at least one value" : "Leave values out",
    );
  return operator === "In" || operator === "NotIn" ? { key, operator, values } : { key, operator };
}

function labelOf(node: Node): string {
  const text = node.text(317);
  if (labelText.test(text)) return text;
  throw node.wrong("a label", "Use A-Z, a-z, 0-9, -, _, . and /");
}
