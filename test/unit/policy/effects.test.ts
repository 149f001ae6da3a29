import test from "ava";
import { parseIp } from "../../../core/address.ts";
import { compile, type Decisions } from "../../../policy/compile.ts";
import { decide } from "../../../policy/decide.ts";
import { effectsOf } from "../../../policy/effects.ts";
import { readPolicy } from "../../../policy/read-policy.ts";

const policy = (name: string, fields: object) => readPolicy({ name, ...fields });
const compiled = (...policies: ReturnType<typeof policy>[]): Decisions =>
  compile(policies, {
    pods: [],
    host: [parseIp("192.168.123.1")],
    hostServices: [],
    cloudMetadata: false,
  });
const said = (before: Decisions, after: Decisions | undefined, name = "p"): string[] =>
  effectsOf(before, after, name).map(
    ({ direction, change, rule }) => `${direction} ${change} ${rule}`,
  );

const web = {
  name: "web",
  action: "allow",
  cidrs: ["192.0.2.0/24"],
  protocol: "tcp",
  ports: [443],
};
const shut = { name: "shut", action: "deny", cidrs: ["198.51.100.0/24"] };
const closed = policy("p", { default: "deny", rules: [web] });

test("without its only policy a pod may do all that the policy denied", (t) => {
  t.deepEqual(said(compiled(closed), undefined), ["egress opens p/default"]);
  const p = policy("p", {
    default: "allow",
    rules: [shut],
    ingress: { default: "deny", rules: [] },
  });
  t.deepEqual(said(compiled(p), undefined), ["egress opens p/shut", "ingress opens p/default"]);
  t.deepEqual(said(compiled(policy("p", { default: "allow", rules: [web] })), undefined), []);
});

test("what one policy allows closes where another one denies by default", (t) => {
  const other = policy("q", { default: "deny", rules: [] });
  t.deepEqual(said(compiled(closed, other), compiled(other)), ["egress closes p/web"]);
  const names = policy("p", {
    default: "deny",
    rules: [{ name: "api", action: "allow", domains: ["*.example.com"] }],
  });
  t.deepEqual(said(compiled(names, other), compiled(other)), ["egress closes p/api"]);
  // With the last names, other DNS servers are open again.
  t.deepEqual(said(compiled(names), undefined), [
    "egress opens podnet/resolver",
    "egress opens podnet/encrypted-dns",
    "egress opens p/default",
  ]);
  const open = policy("q", { default: "allow", rules: [] });
  t.deepEqual(said(compiled(closed, open), compiled(open)), ["egress opens p/default"]);
});

test("what the other policies decide alike does not change, nor what rules before it decide", (t) => {
  const same = policy("q", { default: "deny", rules: [{ ...web, name: "too" }] });
  t.deepEqual(said(compiled(closed, same), compiled(same)), []);
  const shadowed = policy("p", {
    default: "allow",
    rules: [{ ...shut, cidrs: ["192.168.123.1/32"] }],
  });
  t.deepEqual(said(compiled(shadowed), compiled(policy("q", { default: "allow", rules: [] }))), []);
});

test("what is said to open or close does so for a flow that the rule decides", (t) => {
  const other = policy("q", {
    default: "deny",
    rules: [{ name: "lan", action: "allow", cidrs: ["198.51.100.0/25"] }],
  });
  const p = policy("p", { default: "deny", rules: [shut, web] });
  const [before, after] = [compiled(p, other), compiled(other)];
  t.deepEqual(said(before, after), ["egress opens p/shut", "egress closes p/web"]);
  const flow = (ip: string) => ({ ip: parseIp(ip), protocol: "tcp", port: 443 }) as const;
  t.is(decide(before.egress, flow("198.51.100.1")).verdict, "deny");
  t.is(decide(after.egress, flow("198.51.100.1")).verdict, "allow");
  t.is(decide(before.egress, flow("192.0.2.9")).verdict, "allow");
  t.is(decide(after.egress, flow("192.0.2.9")).verdict, "deny");
});
