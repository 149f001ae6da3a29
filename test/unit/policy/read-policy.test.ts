import test from "ava";
import { PodnetError } from "../../../core/errors.ts";
import { readPolicy } from "../../../policy/read-policy.ts";
import { isTarget } from "../../../policy/selector.ts";

test("a policy file is read whole: names, reasons, addresses, domains, pods, ports", (t) => {
  const policy = readPolicy({
    name: "builds",
    applies_to: {
      labels: { role: "builder" },
      namespace: "ci",
      pods: ["one", "two"],
      networks: ["blue"],
    },
    default: "deny",
    rules: [
      {
        name: "no-lan",
        reason: "The LAN is for people",
        action: "deny",
        cidrs: ["10.1.0.0/16", "10.0.0.0/16", "192.0.2.1", "fd00::1-fd00::9"],
      },
      { name: "index", action: "allow", domains: ["PyPI.org.", "*.bücher.example"], ports: [443] },
      {
        name: "db",
        action: "allow",
        pods: { labels: { app: "db" } },
        protocol: "tcp",
        ports: [5432, "8000-8100"],
      },
      { name: "ping", action: "allow", protocol: "icmp" },
    ],
    ingress: { default: "allow", rules: null },
  });
  t.deepEqual(policy, {
    name: "builds",
    appliesTo: {
      labels: [{ key: "role", operator: "In", values: ["builder"] }],
      namespace: [{ key: "kubernetes.io/metadata.name", operator: "In", values: ["ci"] }],
      pods: ["one", "two"],
      networks: ["blue"],
    },
    egress: {
      default: "deny",
      rules: [
        {
          name: "no-lan",
          reason: "The LAN is for people",
          action: "deny",
          peers: {
            ranges: [
              { first: "10.0.0.0", last: "10.1.255.255" },
              { first: "192.0.2.1", last: "192.0.2.1" },
              { first: "fd00::1", last: "fd00::9" },
            ],
            domains: [],
            pods: [],
          },
        },
        {
          name: "index",
          reason: "",
          action: "allow",
          peers: {
            ranges: [],
            domains: [
              { name: "pypi.org", below: false },
              { name: "xn--bcher-kva.example", below: true },
            ],
            pods: [],
          },
          services: [
            { protocol: "tcp", ports: { first: 443, last: 443 } },
            { protocol: "udp", ports: { first: 443, last: 443 } },
          ],
        },
        {
          name: "db",
          reason: "",
          action: "allow",
          peers: {
            ranges: [],
            domains: [],
            pods: [{ labels: [{ key: "app", operator: "In", values: ["db"] }], namespace: [] }],
          },
          services: [
            { protocol: "tcp", ports: { first: 5432, last: 5432 } },
            { protocol: "tcp", ports: { first: 8000, last: 8100 } },
          ],
        },
        { name: "ping", reason: "", action: "allow", services: [{ protocol: "icmp" }] },
      ],
    },
    ingress: { default: "allow", rules: [] },
  } as never);
});

test("a direction without rules or default is left to other policies; the default denies", (t) => {
  t.deepEqual(readPolicy({ name: "a", rules: [] }), {
    name: "a",
    egress: { default: "deny", rules: [] },
  });
  t.deepEqual(readPolicy({ name: "a", ingress: {} }), {
    name: "a",
    ingress: { default: "deny", rules: [] },
  });
});

const rule = (fields: object): object => ({
  name: "p",
  rules: [{ name: "r", action: "allow", ...fields }],
});

const refusals: readonly (readonly [
  what: string,
  value: unknown,
  code: string,
  field: string | undefined,
  hint: RegExp,
])[] = [
  ["no object", 5, "INVALID_ARGUMENT", undefined, /fields/],
  ["a list", [], "INVALID_ARGUMENT", undefined, /fields/],
  ["no name", { default: "deny" }, "INVALID_ARGUMENT", "name", /Give it a name/],
  ["capitals", { name: "P", default: "deny" }, "INVALID_ARGUMENT", "name", /a-z/],
  ["no rules", { name: "p" }, "INVALID_ARGUMENT", undefined, /default, rules or ingress/],
  ["an unknown field", { name: "p", rule: [] }, "UNKNOWN_FIELD", "rule", /Write rules/],
  [
    "an unknown word",
    { name: "p", default: "reject" },
    "INVALID_ARGUMENT",
    "default",
    /allow, deny/,
  ],
  ["a typing error", { name: "p", default: "alow" }, "INVALID_ARGUMENT", "default", /mean allow/],
  ["rules as an object", { name: "p", rules: {} }, "INVALID_ARGUMENT", "rules", /list|\[ONE/],
  [
    "too many rules",
    { name: "p", rules: Array.from({ length: 501 }) },
    "INVALID_ARGUMENT",
    "rules",
    /501/,
  ],
  [
    "a rule without name",
    { name: "p", rules: [{ action: "deny" }] },
    "INVALID_ARGUMENT",
    "rules[0].name",
    /name/,
  ],
  [
    "a rule without action",
    { name: "p", rules: [{ name: "r" }] },
    "INVALID_ARGUMENT",
    "rules[0].action",
    /text/,
  ],
  [
    "two of a name",
    {
      name: "p",
      rules: [
        { name: "r", action: "deny" },
        { name: "r", action: "deny" },
      ],
    },
    "INVALID_ARGUMENT",
    "rules[1].name",
    /rename/,
  ],
  [
    "an unknown field of a rule",
    rule({ cidr: "10.0.0.0/8" }),
    "UNKNOWN_FIELD",
    "rules[0].cidr",
    /Write cidrs/,
  ],
  [
    "a field of nothing like it",
    rule({ quota: 5 }),
    "UNKNOWN_FIELD",
    "rules[0].quota",
    /Fields here are name/,
  ],
  [
    "a network that is none",
    rule({ cidrs: ["10.0.0.0/33"] }),
    "ADDRESS_INVALID",
    "rules[0].cidrs[0]",
    /length/,
  ],
  [
    "an empty list",
    rule({ cidrs: [] }),
    "INVALID_ARGUMENT",
    "rules[0].cidrs",
    /Leave the field out/,
  ],
  [
    "a number for a name",
    rule({ domains: [5] }),
    "INVALID_ARGUMENT",
    "rules[0].domains[0]",
    /quotes/,
  ],
  [
    "an address for a name",
    rule({ domains: ["192.0.2.1"] }),
    "INVALID_ARGUMENT",
    "rules[0].domains[0]",
    /cidrs/,
  ],
  [
    "a port that is none",
    rule({ ports: [0] }),
    "INVALID_ARGUMENT",
    "rules[0].ports[0]",
    /1 to 65535/,
  ],
  [
    "ports backwards",
    rule({ ports: ["90-80"] }),
    "INVALID_ARGUMENT",
    "rules[0].ports[0]",
    /FIRST-LAST/,
  ],
  [
    "ports of ICMP",
    rule({ protocol: "icmp", ports: [1] }),
    "INVALID_ARGUMENT",
    "rules[0].ports",
    /Leave ports out/,
  ],
  [
    "a protocol that is none",
    rule({ protocol: "tcpp" }),
    "INVALID_ARGUMENT",
    "rules[0].protocol",
    /mean tcp/,
  ],
  [
    "a label that is a number",
    rule({ pods: { labels: { a: 1 } } }),
    "INVALID_ARGUMENT",
    "rules[0].pods.labels.a",
    /quotes/,
  ],
  [
    "a long reason",
    rule({ reason: "x".repeat(201) }),
    "INVALID_ARGUMENT",
    "rules[0].reason",
    /201/,
  ],
  [
    "a reason that reverses text",
    rule({ reason: "a\u202eb" }),
    "INVALID_ARGUMENT",
    "rules[0].reason",
    /invisible/,
  ],
  [
    "a name for who connects",
    { name: "p", ingress: { rules: [{ name: "r", action: "allow", domains: ["a.example"] }] } },
    "INVALID_ARGUMENT",
    "ingress.rules[0].domains",
    /cidrs or pods/,
  ],
];

for (const [what, value, code, field, hint] of refusals) {
  test(`a policy file is refused with field and remedy: ${what}`, (t) => {
    const error = t.throws(() => readPolicy(value), { instanceOf: PodnetError });
    t.is(error.code, code as never);
    t.is(error.field, field);
    t.regex(error.hint ?? "", hint);
  });
}

test("pods are chosen by what they lack", (t) => {
  const policy = readPolicy({
    name: "untrusted",
    applies_to: { without: ["admin.podnet/trusted"], labels: { app: "web" } },
    rules: [{ name: "a", action: "allow", pods: { without: ["tier"] } }],
  });
  const target = policy.appliesTo;
  if (target === undefined) throw new Error("It chooses none");
  const pod = (labels: Readonly<Record<string, string>>): boolean =>
    isTarget(target, { name: "p", addresses: [], labels });
  t.true(pod({ app: "web" }));
  t.true(pod({ app: "web", role: "x" }));
  t.false(pod({ app: "web", "admin.podnet/trusted": "" }), "any value");
  t.false(pod({}));
  t.deepEqual(policy.egress?.rules[0]?.peers?.pods, [
    { labels: [{ key: "tier", operator: "DoesNotExist" }], namespace: [] },
  ]);
  for (const [applies_to, field] of [
    [{ without: [] }, "applies_to.without"],
    [{ without: "a" }, "applies_to.without"],
    [{ without: [7] }, "applies_to.without[0]"],
    [{ without: ["a"], labels: { a: "b" } }, "applies_to.without"],
  ] as const)
    t.like(
      t.throws(() => readPolicy({ name: "p", applies_to, default: "deny" })),
      { field },
    );
});
