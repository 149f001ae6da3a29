import test from "ava";
import { PodnetError } from "../../../core/errors.ts";
import { compile, policiesOf } from "../../../policy/compile.ts";
import { nameOfRules, ownerOfRules } from "../../../policy/inline.ts";
import { policyLines } from "../../../policy/policy-text.ts";
import { inlineDocument, readDocument, readInlineRules } from "../../../policy/read-document.ts";
import { readPolicy } from "../../../policy/read-policy.ts";

const web = { kind: "pod", name: "web" } as const;
const rules = {
  default: "allow",
  rules: [
    { name: "no-lan", reason: "People", action: "deny", cidrs: ["10.0.0.0/8"], ports: [22, "8-9"] },
    { name: "names", action: "allow", domains: ["*.a.example"], ports: [443] },
    { name: "db", action: "allow", pods: { labels: { app: "db" }, namespace: "ci" } },
    { name: "any", action: "allow", pods: {}, protocol: "icmp" },
  ],
  ingress: { rules: [] },
};

test("rules of a pod or network have a name that no policy has", (t) => {
  t.is(nameOfRules(web), "pod:web");
  t.deepEqual(ownerOfRules("pod:web"), web);
  t.deepEqual(ownerOfRules("network:blue"), { kind: "network", name: "blue" });
  for (const name of ["web", "default/web", "pod/web", "pod:", "host:web", ""])
    t.is(ownerOfRules(name), undefined, name);
  t.throws(() => readPolicy({ name: "pod:web", default: "deny" }), { code: "INVALID_ARGUMENT" });
});

test("they are read like a policy without name and applies_to, alone or by their name", (t) => {
  const read = readInlineRules(rules, web);
  t.deepEqual(read, { ...readPolicy({ name: "p", ...rules }), name: "pod:web" });
  t.deepEqual(readDocument({ name: "pod:web", ...rules }), read);
  t.deepEqual(inlineDocument({ name: "pod:web", ...rules }), { owner: web, rules });
  t.is(inlineDocument({ name: "web", ...rules }), undefined);
});

const wrong: readonly (readonly [what: string, rules: unknown, code: string, field: string])[] = [
  ["nothing", {}, "INVALID_ARGUMENT", "policy"],
  ["no object", [], "INVALID_ARGUMENT", "policy"],
  ["a target", { applies_to: {}, default: "deny" }, "UNKNOWN_FIELD", "policy.applies_to"],
  ["a word", { default: "reject" }, "INVALID_ARGUMENT", "policy.default"],
  [
    "an address",
    { rules: [{ name: "a", action: "deny", cidrs: ["10.0.0.1", "10.0.0.300"] }] },
    "ADDRESS_INVALID",
    "policy.rules[0].cidrs[1]",
  ],
  [
    "ports of names",
    { rules: [{ name: "a", action: "deny", domains: ["a.example"], ports: [22] }] },
    "UNSUPPORTED",
    "policy.rules[0].ports",
  ],
];
for (const [what, value, code, field] of wrong)
  test(`what is wrong with them is said with its place: ${what}`, (t) => {
    const error = t.throws(() => readInlineRules(value, web), { instanceOf: PodnetError });
    t.like(error, { code, field });
    t.truthy(error.hint);
    const byName = t.throws(() => readDocument({ name: "pod:web", ...Object(value) }), {
      instanceOf: PodnetError,
    });
    t.is(byName.field ?? "", field.replace(/^policy\.?/, ""));
  });

test("a pod's own rules come first, then those of its networks, then policies by name", (t) => {
  const pod = { name: "web", addresses: [], labels: {}, networks: ["blue"] };
  const everywhere = readPolicy({ name: "a", applies_to: {}, ...rules });
  const network = readInlineRules(rules, { kind: "network", name: "blue" });
  const own = readInlineRules({ ...rules, default: "deny" }, web);
  const all = policiesOf(pod, [own, network], [everywhere]);
  const surroundings = { pods: [], host: [], hostServices: [], cloudMetadata: true };
  const { egress } = compile(all, surroundings);
  t.deepEqual(
    egress.entries.filter(({ rule }) => rule === "no-lan").map(({ policy }) => policy),
    ["pod:web", "network:blue", "a"],
  );
  t.like(egress.otherwise, { policy: "pod:web", verdict: "deny" });
});

test("a plan shows them a line each", (t) => {
  t.deepEqual(policyLines(readInlineRules(rules, web)), [
    "pod:web egress no-lan: deny 10.0.0.0-10.255.255.255 tcp 22, tcp 8-9, udp 22, udp 8-9 (People)",
    "pod:web egress names: allow *.a.example tcp 443, udp 443",
    "pod:web egress db: allow pods with app In db and kubernetes.io/metadata.name In ci",
    "pod:web egress any: allow pods with any labels icmp",
    "pod:web egress default: allow",
    "pod:web ingress default: deny",
  ]);
});
