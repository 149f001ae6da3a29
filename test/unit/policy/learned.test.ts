import test from "ava";
import { parseIp } from "../../../core/address.ts";
import { readDocument } from "../../../policy/read-document.ts";
import { compile } from "../../../policy/compile.ts";
import { decide } from "../../../policy/decide.ts";
import type { DomainName } from "../../../policy/domain.ts";
import { learnedPolicy, type Used } from "../../../policy/learned.ts";

const [api, db, dns] = ["203.0.113.1", "192.0.2.9", "192.0.2.53"].map((text) => parseIp(text)) as [
  ReturnType<typeof parseIp>,
  ReturnType<typeof parseIp>,
  ReturnType<typeof parseIp>,
];
const six = parseIp("2001:db8::9");
const name = "api.example" as DomainName;
const used: Used = {
  pod: "web",
  names: new Map([[name, new Set([api])]]),
  flows: [
    { address: api, protocol: 6, port: 443 },
    { address: api, protocol: 17, port: 443 },
    { address: api, protocol: 6, port: 22 },
    { address: db, protocol: 6, port: 5432 },
    { address: six, protocol: 6, port: 5432 },
    { address: db, protocol: 6, port: 443 },
    { address: dns, protocol: 17, port: 53 },
    { address: db },
  ],
};

test("a policy of a container chooses it by its names, which may be no name of a policy", (t) => {
  const none = { names: new Map(), flows: [] };
  const { document } = learnedPolicy({ pod: "Web_1.x", namespace: "ci", ...none });
  t.like(document, { name: "learned-web-1-x", applies_to: { namespace: "ci", pods: ["Web_1.x"] } });
  t.is(readDocument(document).name, document.name);
});

test("a policy has names for what names decide, and addresses for all else", (t) => {
  const { document, more } = learnedPolicy(used);
  t.false(more);
  t.deepEqual(document, {
    name: "learned-web",
    applies_to: { pods: ["web"] },
    default: "deny",
    rules: [
      { name: "icmp", action: "allow", cidrs: [db], protocol: "icmp" },
      { name: "tcp-22", action: "allow", cidrs: [api], protocol: "tcp", ports: [22] },
      { name: "tcp-443", action: "allow", cidrs: [db], protocol: "tcp", ports: [443] },
      { name: "tcp-5432", action: "allow", cidrs: [db, six], protocol: "tcp", ports: [5432] },
      { name: "names", action: "allow", domains: ["api.example"], ports: [80, 443] },
    ],
  });
  // It can be applied, and allows what the pod did.
  const { egress } = compile([readDocument(document)], {
    pods: [],
    host: [],
    hostServices: [],
    cloudMetadata: false,
  });
  const verdict = (ip: typeof api, port: number): string =>
    decide(egress, { ip, protocol: "tcp", port }).verdict;
  t.deepEqual(
    [verdict(db, 5432), verdict(db, 443), verdict(api, 443), verdict(api, 5432)],
    ["allow", "allow", "relay", "deny"],
  );
});

test("a pod that resolved nothing gets addresses alone; one that did nothing, nothing", (t) => {
  const rules = ({ names, flows }: Partial<Used>): readonly unknown[] => {
    const { document } = learnedPolicy({
      pod: "web",
      names: names ?? new Map(),
      flows: flows ?? [],
    });
    readDocument(document);
    return document.rules.map((rule) => rule["name"]);
  };
  t.deepEqual(rules({ flows: used.flows }), [
    "icmp",
    "tcp-22",
    "tcp-443",
    "tcp-5432",
    "udp-53",
    "udp-443",
  ]);
  t.deepEqual(rules({}), []);
});

test("what does not fit is left out, and said", (t) => {
  const long = learnedPolicy({ pod: `${"a".repeat(54)}-b`, names: new Map(), flows: [] });
  t.is(readDocument(long.document).name, `learned-${"a".repeat(54)}`);
  const names = new Map(
    Array.from(
      { length: 1500 },
      (_, n) => [`n${n}.example` as DomainName, new Set<never>()] as const,
    ),
  );
  const flows = Array.from({ length: 900 }, (_, n) => ({
    address: db,
    protocol: 6,
    port: n + 1000,
  }));
  const { document, more } = learnedPolicy({ pod: "web", names, flows });
  t.true(more);
  t.is(document.rules.length, 500);
  readDocument(document);
});
