import { deepStrictEqual, ok } from "node:assert";
import { parseIp } from "../../../core/address.ts";
import { isPodnetError } from "../../../core/errors.ts";
import { compile } from "../../../policy/compile.ts";
import { decide } from "../../../policy/decide.ts";
import {
  canonicalName,
  domainText,
  matchesDomain,
  parseDomainPattern,
} from "../../../policy/domain.ts";
import type { Policy } from "../../../policy/model.ts";
import { isKubernetesObject, readNetworkPolicies } from "../../../policy/read-network-policy.ts";
import { policyLines } from "../../../policy/policy-text.ts";
import { documentOf, readDocument, readInlineRules } from "../../../policy/read-document.ts";
import { readDirections, readPolicy } from "../../../policy/read-policy.ts";
import { type Target, json, textOf, utf8, valueOf } from "../engine/target.ts";

const codes = ["INVALID_ARGUMENT", "UNKNOWN_FIELD", "ADDRESS_INVALID"] as const;

const policy = {
  name: "p",
  applies_to: { labels: { app: "web" }, namespace: "prod", pods: ["db"], networks: ["blue"] },
  default: "deny",
  rules: [
    {
      name: "a",
      action: "allow",
      reason: "r",
      cidrs: ["10.0.0.0/8", "fd00::1"],
      ports: [443, "1-9"],
    },
    {
      name: "b",
      action: "deny",
      domains: ["a.example", "*.b.example"],
      protocol: "tcp",
      ports: [1],
    },
    { name: "c", action: "deny", pods: { labels: { a: "b" } }, protocol: "icmp" },
  ],
  ingress: { default: "allow", rules: [{ name: "a", action: "deny", pods: {} }] },
};
const networkPolicy = {
  apiVersion: "networking.k8s.io/v1",
  kind: "NetworkPolicy",
  metadata: { name: "p.q", namespace: "prod" },
  spec: {
    podSelector: { matchLabels: { a: "b" } },
    policyTypes: ["Ingress", "Egress"],
    ingress: [
      {
        from: [
          { ipBlock: { cidr: "10.0.0.0/8", except: ["10.1.0.0/16"] } },
          { podSelector: {}, namespaceSelector: {} },
          { namespaceSelector: { matchExpressions: [{ key: "a", operator: "Exists" }] } },
        ],
        ports: [{ protocol: "UDP", port: 5, endPort: 9 }, { port: 80 }, {}],
      },
    ],
    egress: [
      {
        to: [{ podSelector: { matchExpressions: [{ key: "a", operator: "In", values: ["b"] }] } }],
      },
      {},
    ],
  },
};
const { policyTypes: _types, ...untyped } = networkPolicy.spec;
const spec = (fields: object): object => ({
  ...networkPolicy,
  spec: { podSelector: {}, ...fields },
});
const rule = (fields: object): object => ({
  name: "p",
  rules: [{ name: "a", action: "deny", ...fields }],
});
const ingress = (fields: object): object => spec({ ingress: [fields] });

const seeds: readonly unknown[] = [
  policy,
  networkPolicy,
  { ...networkPolicy, spec: untyped },
  { kind: "List", items: [networkPolicy, networkPolicy] },
  { kind: "NetworkPolicyList", items: 5 },
  { ...networkPolicy, metadata: { name: "UPPER" } },
  { name: "p" },
  { ...policy, name: "pod:web", applies_to: null },
  { name: "network:blue", ingress: { default: "deny" } },
  { name: "pod:", default: "deny" },
  { name: "pod:web", applies_to: {}, default: "deny" },
  { name: "pod:web", rules: [{ name: "a", action: "deny", domains: ["a.example"] }] },
  { name: "pod:web", rules: [{ name: "a", action: "deny", domains: ["a.b"], ports: [9] }] },
  { name: 5, default: "deny" },
  { name: "P", default: "deny" },
  { default: "deny" },
  { name: "p", default: "alow" },
  { name: "p", default: "something else" },
  { name: "p", defaults: 1 },
  { name: "p", quota: 1 },
  { name: "p", rules: [null, 5] },
  { name: "p", rules: {} },
  { name: "p", default: "deny", applies_to: { networks: [] } },
  { name: "p", default: "deny", applies_to: { pods: [7], label: {} } },
  { name: "p", rules: Array.from({ length: 501 }) },
  { name: "p", rules: [policy.rules[0], policy.rules[0]] },
  rule({ cidrs: [] }),
  rule({ cidrs: ["10.0.0.9/8"] }),
  rule({ reason: "a\u202eb" }),
  rule({ reason: "r".repeat(201) }),
  rule({ protocol: "icmp", ports: [5] }),
  rule({ ports: ["9-1"] }),
  ...[
    "*",
    "https://a.example/",
    "10.0.0.1",
    "a.example:443",
    "*.*.a",
    "a",
    "bücher.example",
    "ü%.de",
  ].map((domain) => rule({ domains: [domain] })),
  { name: "p", ingress: { rules: [{ name: "a", action: "deny", domains: ["a.example"] }] } },
  ingress({ from: [{}] }),
  ingress({ from: [{ ipBlock: { cidr: "10.0.0.0/8", except: ["11.0.0.0/16"] } }] }),
  ingress({ ports: [{ port: "http" }] }),
  ingress({ ports: [{ port: 9, endPort: 8 }] }),
  ingress({ ports: [{ endPort: 8 }] }),
  ingress({ ports: [{ port: 0 }] }),
  spec({ podSelector: { matchExpressions: [{ key: "a", operator: "In" }] } }),
  spec({ podSelector: { matchExpressions: [{ key: "a b", operator: "Exists" }] } }),
];

const addresses = ["10.0.0.1", "10.1.0.1", "fd00::1", "198.51.100.1", "169.254.169.254"].map((ip) =>
  parseIp(ip),
);

/** Whatever was read decides every flow, and leaves the floor. */
function decides(policies: readonly Policy[]): void {
  const { egress, ingress } = compile(policies, {
    pods: [{ name: "a", addresses: [parseIp("10.0.0.9")], labels: { a: "b" } }],
    host: [parseIp("10.0.0.1")],
    hostServices: [],
    cloudMetadata: false,
  });
  deepStrictEqual(JSON.parse(JSON.stringify(egress)), egress, "it is plain JSON");
  for (const ip of addresses)
    for (const name of [undefined, null, canonicalName("x.b.example") ?? null])
      for (const port of [443, 22]) {
        const flow = {
          ip,
          protocol: "tcp",
          port,
          ...(name === undefined ? {} : { name }),
        } as const;
        const { verdict, rule } = decide(egress, flow);
        ok(rule !== "" && (name === undefined || verdict !== "relay"));
        if (ip === "10.0.0.1" || ip === "169.254.169.254") deepStrictEqual(verdict, "deny");
        ok(decide(ingress, flow).verdict !== "relay");
      }
}

const files: Target = {
  name: "policy-file",
  files: [
    "policy/read-policy.ts",
    "policy/read-network-policy.ts",
    "policy/read-document.ts",
    "policy/inline.ts",
    "policy/fields.ts",
  ],
  seeds: seeds.map(json),
  words: ["name", "rules", "cidrs", "domains", "pods", "ports", "ipBlock", "10.0.0.0/8", "*."],
  longest: 8192,
  run: (bytes) => {
    let value: unknown;
    try {
      value = JSON.parse(textOf(bytes));
    } catch {
      return;
    }
    const policies = valueOf(codes, () =>
      isKubernetesObject(value) ||
      Object(value).kind === "List" ||
      Object(value).kind === "NetworkPolicyList"
        ? readNetworkPolicies(value)
        : [readPolicy(value)],
    );
    if (policies !== undefined) decides(policies);
    const document = valueOf([...codes, "UNSUPPORTED"], () => readDocument(value));
    if (document !== undefined) decides([document]);
    const { name: _name, ...inline } = Object(value) as { name?: unknown };
    const own = valueOf([...codes, "UNSUPPORTED"], () =>
      readInlineRules(inline, { kind: "pod", name: "web" }),
    );
    if (own === undefined) return;
    const { name, ...directions } = own;
    deepStrictEqual(name, "pod:web");
    deepStrictEqual(readDirections(inline, "policy"), directions);
    deepStrictEqual(readDocument(documentOf({ kind: "pod", name: "web" }, inline)), own);
    ok(policyLines(own).every((line) => line.startsWith("pod:web ") && !line.includes("\n")));
  },
};

const domains: Target = {
  name: "policy-domain",
  files: ["policy/domain.ts"],
  seeds: [
    "a.example",
    "*.a.example",
    "A.example.",
    "127.1",
    "1.2.3.4",
    "*",
    "https://a.example/",
    "a/b",

    "a.example:1",
    "a.*.example",
    "bücher.example",
    "ü %.example",
    "\u212a.example",
    "a..b",
    "0x.1",

    "a.b.example\nb.example",
    `${"a".repeat(64)}.example`,
    "_a.example",
    `${"abc.".repeat(70)}example`,
  ].map(utf8),
  words: ["*.", ".", "xn--", "example", "ü", "0x"],
  longest: 400,
  run: (bytes) => {
    const [text = "", other = ""] = textOf(bytes).split("\n");
    const name = canonicalName(text);
    if (name !== undefined) deepStrictEqual(canonicalName(`${name.toUpperCase()}.`), name);
    try {
      const pattern = parseDomainPattern(text);
      deepStrictEqual(parseDomainPattern(domainText(pattern)), pattern);
      for (const each of [canonicalName(other), canonicalName(`x.${pattern.name}`)])
        if (each !== undefined && matchesDomain(pattern, each))
          ok(pattern.below ? each.endsWith(`.${pattern.name}`) : each === pattern.name);
    } catch (error) {
      if (!isPodnetError(error, "INVALID_ARGUMENT")) throw error;
      ok(error.hint !== undefined);
    }
  },
};

export const policies: readonly Target[] = [files, domains];
