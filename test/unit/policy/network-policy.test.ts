import test from "ava";
import fc from "fast-check";
import ipaddr from "ipaddr.js";
import { parse } from "yaml";
import { parseIp } from "../../../core/address.ts";
import { PodnetError } from "../../../core/errors.ts";
import { compile, policiesOf } from "../../../policy/compile.ts";
import { decide } from "../../../policy/decide.ts";
import { isKubernetesObject, readNetworkPolicies } from "../../../policy/read-network-policy.ts";
import type { PodFacts } from "../../../policy/selector.ts";

// NetworkPolicy as its API reference says it, written here once more and without compiling
// anything: each flow is compared with what `compile` and `decide` make of the same objects.

type Labels = Readonly<Record<string, string>>;
interface Selector {
  matchLabels?: Labels;
  matchExpressions?: { key: string; operator: string; values?: readonly string[] }[];
}
interface Peer {
  ipBlock?: { cidr: string; except?: readonly string[] };
  podSelector?: Selector;
  namespaceSelector?: Selector;
}
interface Port {
  protocol?: string;
  port?: number;
  endPort?: number;
}
interface KubernetesRule {
  from?: Peer[];
  to?: Peer[];
  ports?: Port[];
}
interface NetworkPolicy {
  apiVersion: string;
  kind: string;
  metadata: { name: string; namespace?: string };
  spec: {
    podSelector: Selector;
    policyTypes?: string[];
    ingress?: KubernetesRule[];
    egress?: KubernetesRule[];
  };
}

function chosen(selector: Selector, labels: Labels): boolean {
  for (const [key, value] of Object.entries(selector.matchLabels ?? {}))
    if (labels[key] !== value) return false;
  for (const { key, operator, values = [] } of selector.matchExpressions ?? []) {
    const has = key in labels;
    const listed = has && values.includes(labels[key] as string);
    if (operator === "In" && !listed) return false;
    if (operator === "NotIn" && listed) return false;
    if (operator === "Exists" && !has) return false;
    if (operator === "DoesNotExist" && has) return false;
  }
  return true;
}

const namespaceOf = (pod: PodFacts): string => pod.namespace ?? "default";
const namespaceLabels = (pod: PodFacts): Labels => ({
  ...pod.namespaceLabels,
  "kubernetes.io/metadata.name": namespaceOf(pod),
});

function inBlock(cidr: string, ip: string): boolean {
  const [network, length] = ipaddr.parseCIDR(cidr);
  const address = ipaddr.parse(ip);
  return address.kind() === network.kind() && address.match([network, length] as never);
}

function peerMatches(peer: Peer, own: string, other: string, pods: readonly PodFacts[]): boolean {
  if (peer.ipBlock !== undefined)
    return (
      inBlock(peer.ipBlock.cidr, other) &&
      !(peer.ipBlock.except ?? []).some((part) => inBlock(part, other))
    );
  return pods.some(
    (pod) =>
      pod.addresses.some((each) => each === other) &&
      chosen(peer.podSelector ?? {}, pod.labels) &&
      (peer.namespaceSelector === undefined
        ? namespaceOf(pod) === own
        : chosen(peer.namespaceSelector, namespaceLabels(pod))),
  );
}

const portMatches = (
  { protocol = "TCP", port, endPort }: Port,
  asked: { protocol: string; port: number },
): boolean =>
  protocol.toLowerCase() === asked.protocol &&
  (port === undefined || (asked.port >= port && asked.port <= (endPort ?? port)));

function allowedBy(
  policies: readonly NetworkPolicy[],
  direction: "ingress" | "egress",
  pod: PodFacts,
  asked: { other: string; protocol: string; port: number },
  pods: readonly PodFacts[],
): boolean {
  const isolating = policies.filter(({ metadata, spec }) => {
    const types = spec.policyTypes ?? [
      "Ingress",
      ...((spec.egress ?? []).length > 0 ? ["Egress"] : []),
    ];
    return (
      (metadata.namespace ?? "default") === namespaceOf(pod) &&
      chosen(spec.podSelector, pod.labels) &&
      types.includes(direction === "ingress" ? "Ingress" : "Egress")
    );
  });
  if (isolating.length === 0) return true;
  return isolating.some(({ metadata, spec }) =>
    (spec[direction] ?? []).some((rule) => {
      const peers = rule[direction === "ingress" ? "from" : "to"] ?? [];
      const ports = rule.ports ?? [];
      return (
        (peers.length === 0 ||
          peers.some((peer) =>
            peerMatches(peer, metadata.namespace ?? "default", asked.other, pods),
          )) &&
        (ports.length === 0 || ports.some((port) => portMatches(port, asked)))
      );
    }),
  );
}

const key = fc.constantFrom("app", "tier");
const value = fc.constantFrom("a", "b", "c");
const labels = fc.dictionary(key, value, { maxKeys: 2 });
const selector: fc.Arbitrary<Selector> = fc.record(
  {
    matchLabels: labels,
    matchExpressions: fc.array(
      fc.oneof(
        fc.record({
          key,
          operator: fc.constantFrom("In", "NotIn"),
          values: fc.array(value, { minLength: 1, maxLength: 2 }),
        }),
        fc.record({ key, operator: fc.constantFrom("Exists", "DoesNotExist") }),
      ),
      { maxLength: 2 },
    ),
  },
  { requiredKeys: [] },
);
const namespaceSelector: fc.Arbitrary<Selector> = fc.oneof(
  selector,
  fc.constantFrom({}, { matchLabels: { "kubernetes.io/metadata.name": "prod" } }),
);
const block = fc.constantFrom(
  { cidr: "0.0.0.0/0" },
  { cidr: "10.0.0.0/29", except: ["10.0.0.2/31", "10.0.0.3/32"] },
  { cidr: "10.0.0.0/28", except: ["10.0.0.0/29"] },
  { cidr: "fd00::/64", except: ["fd00::4/126"] },
);
const peer: fc.Arbitrary<Peer> = fc.oneof(
  fc.record({ ipBlock: block }),
  fc.record({ podSelector: selector }),
  fc.record({ namespaceSelector }),
  fc.record({ podSelector: selector, namespaceSelector }),
);
const port: fc.Arbitrary<Port> = fc.oneof(
  fc.record({ protocol: fc.constantFrom("TCP", "UDP", "SCTP") }, { requiredKeys: [] }),
  fc.constantFrom({ port: 80 }, { port: 79, endPort: 81 }, { protocol: "UDP", port: 80 }),
);
const rules = (side: "from" | "to"): fc.Arbitrary<KubernetesRule[]> =>
  fc.array(
    fc.record(
      { [side]: fc.array(peer, { maxLength: 2 }), ports: fc.array(port, { maxLength: 2 }) },
      { requiredKeys: [] },
    ),
    { maxLength: 2 },
  );
const namespace = fc.constantFrom("default", "prod");
const networkPolicy: fc.Arbitrary<NetworkPolicy> = fc.record({
  apiVersion: fc.constant("networking.k8s.io/v1"),
  kind: fc.constant("NetworkPolicy"),
  metadata: fc.record(
    { name: fc.constantFrom("one", "two"), namespace },
    { requiredKeys: ["name"] },
  ),
  spec: fc.record(
    {
      podSelector: selector,
      policyTypes: fc.subarray(["Ingress", "Egress"], { minLength: 1 }),
      ingress: rules("from"),
      egress: rules("to"),
    },
    { requiredKeys: ["podSelector"] },
  ),
});
const addresses = [
  "10.0.0.2",
  "10.0.0.3",
  "10.0.0.4",
  "10.0.0.9",
  "fd00::4",
  "fd00::8",
  "192.0.2.1",
];
const pods = fc.array(
  fc.record(
    {
      name: fc.constant("pod"),
      addresses: fc.constantFrom(...addresses.slice(0, 6)).map((ip) => [parseIp(ip)]),
      labels,
      namespace,
      namespaceLabels: labels,
    },
    { requiredKeys: ["name", "addresses", "labels"] },
  ),
  { minLength: 1, maxLength: 4 },
);

test("NetworkPolicy objects decide every flow as Kubernetes' reference says, in both directions", (t) => {
  let [allowed, denied] = [0, 0];
  fc.assert(
    fc.property(fc.array(networkPolicy, { maxLength: 3 }), pods, (objects, pods) => {
      const policies = readNetworkPolicies({ kind: "List", items: objects });
      const [pod] = pods;
      if (pod === undefined) return;
      const compiled = compile(policiesOf(pod, [], policies), {
        pods,
        host: [],
        hostServices: [],
        cloudMetadata: true,
      });
      for (const direction of ["ingress", "egress"] as const)
        for (const other of addresses)
          for (const [protocol, port] of [
            ["tcp", 80],
            ["tcp", 82],
            ["udp", 80],
          ] as const) {
            const expected = allowedBy(objects, direction, pod, { other, protocol, port }, pods);
            const { verdict } = decide(compiled[direction], { ip: parseIp(other), protocol, port });
            t.is(verdict, expected ? "allow" : "deny", `${direction} ${other} ${protocol} ${port}`);
            if (expected) allowed++;
            else denied++;
          }
    }),
    { numRuns: 400 },
  );
  t.true(allowed > 1000 && denied > 1000, `${allowed} allowed, ${denied} denied`);
});

test("the example of Kubernetes' documentation is read from YAML", (t) => {
  const object: unknown = parse(`
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: test-network-policy
  namespace: prod
spec:
  podSelector:
    matchLabels: { role: db }
  policyTypes: [Ingress, Egress]
  ingress:
    - from:
        - ipBlock: { cidr: 172.17.0.0/16, except: [172.17.1.0/24] }
        - namespaceSelector: { matchLabels: { project: myproject } }
        - podSelector: { matchLabels: { role: frontend } }
      ports:
        - { protocol: TCP, port: 6379 }
  egress:
    - to: [{ ipBlock: { cidr: 10.0.0.0/24 } }]
      ports: [{ protocol: TCP, port: 5978, endPort: 5980 }]
`);
  t.true(isKubernetesObject(object));
  t.false(isKubernetesObject({ name: "p" }));
  const [policy] = readNetworkPolicies(object);
  t.is(policy?.name, "prod/test-network-policy");
  t.deepEqual(policy?.ingress?.rules[0]?.peers?.ranges, [
    { first: "172.17.0.0", last: "172.17.0.255" },
    { first: "172.17.2.0", last: "172.17.255.255" },
  ] as never);
  t.deepEqual(policy?.egress?.rules[0]?.services, [
    { protocol: "tcp", ports: { first: 5978, last: 5980 } },
  ]);
});

const object = (spec: object, others: object = {}): object => ({
  apiVersion: "networking.k8s.io/v1",
  kind: "NetworkPolicy",
  metadata: { name: "p", labels: { anything: "else" }, creationTimestamp: null },
  spec: { podSelector: {}, ...spec },
  ...others,
});
const ingress = (rule: object): object => object({ ingress: [rule] });

const refusals: readonly (readonly [what: string, value: object, field: string, hint: RegExp])[] = [
  ["another kind", object({}, { kind: "Pod" }), "kind", /NetworkPolicy/],
  ["another version", object({}, { apiVersion: "v1" }), "apiVersion", /networking/],
  [
    "a list of another kind",
    { kind: "List", items: [{ kind: "Pod" }] },
    "items[0].apiVersion",
    /text/,
  ],
  ["no name", { ...object({}), metadata: {} }, "metadata.name", /text/],
  ["a bad name", { ...object({}), metadata: { name: "A" } }, "metadata.name", /a-z/],
  ["an unknown field", object({ podSelectors: {} }), "spec.podSelectors", /podSelector/],
  ["an unknown type", object({ policyTypes: ["Both"] }), "spec.policyTypes[0]", /Ingress/],
  ["a peer of nothing", ingress({ from: [{}] }), "spec.ingress[0].from[0]", /ipBlock alone/],
  [
    "a peer of both kinds",
    ingress({ from: [{ ipBlock: { cidr: "10.0.0.0/8" }, podSelector: {} }] }),
    "spec.ingress[0].from[0]",
    /ipBlock alone/,
  ],
  ["to where from belongs", ingress({ to: [] }), "spec.ingress[0].to", /from/],
  [
    "except outside",
    ingress({ from: [{ ipBlock: { cidr: "10.0.0.0/8", except: ["11.0.0.0/16"] } }] }),
    "spec.ingress[0].from[0].ipBlock.except[0]",
    /smaller/,
  ],
  [
    "except as large",
    ingress({ from: [{ ipBlock: { cidr: "10.0.0.0/8", except: ["10.0.0.0/8"] } }] }),
    "spec.ingress[0].from[0].ipBlock.except[0]",
    /smaller/,
  ],
  [
    "a port by name",
    ingress({ ports: [{ port: "http" }] }),
    "spec.ingress[0].ports[0].port",
    /number/,
  ],
  [
    "a port too large",
    ingress({ ports: [{ port: 65_536 }] }),
    "spec.ingress[0].ports[0].port",
    /65535/,
  ],
  [
    "a last port before the first",
    ingress({ ports: [{ port: 80, endPort: 79 }] }),
    "spec.ingress[0].ports[0].endPort",
    /80 or more/,
  ],
  [
    "a last port alone",
    ingress({ ports: [{ endPort: 79 }] }),
    "spec.ingress[0].ports[0].endPort",
    /first port/,
  ],
  [
    "In without values",
    object({ podSelector: { matchExpressions: [{ key: "a", operator: "In" }] } }),
    "spec.podSelector.matchExpressions[0]",
    /at least one/,
  ],
  [
    "Exists with values",
    object({
      podSelector: { matchExpressions: [{ key: "a", operator: "Exists", values: ["b"] }] },
    }),
    "spec.podSelector.matchExpressions[0]",
    /Leave/,
  ],
  [
    "a label with a blank",
    object({ podSelector: { matchExpressions: [{ key: "a b", operator: "Exists" }] } }),
    "spec.podSelector.matchExpressions[0].key",
    /A-Z/,
  ],
];

for (const [what, value, field, hint] of refusals) {
  test(`a NetworkPolicy is refused with field and remedy: ${what}`, (t) => {
    const error = t.throws(() => readNetworkPolicies(value), { instanceOf: PodnetError });
    t.is(error.field, field);
    t.regex(error.hint ?? "", hint);
  });
}
