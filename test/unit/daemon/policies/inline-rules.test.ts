import type { JsonObject } from "@bufbuild/protobuf";
import test from "ava";
import type { Ip } from "../../../../core/address.ts";
import type { PodId } from "../../../../core/names.ts";
import { PolicyDecisions } from "../../../../daemon/policies/decisions.ts";
import { listInlineRules } from "../../../../daemon/policies/inline-rules.ts";
import { putPolicy } from "../../../../daemon/policies/store.ts";
import { putNetwork } from "../../../../daemon/networks/store.ts";
import { decide } from "../../../../policy/decide.ts";
import { readDocument } from "../../../../policy/read-document.ts";
import { configuration, openNode } from "../fixtures/node.ts";

const lan = "192.0.2.20" as Ip;
const rules = (name: string, action = "deny"): JsonObject => ({
  default: "allow",
  rules: [{ name, action, cidrs: [lan] }],
});

/** The decision about a connection to the LAN; undefined where nothing decides. */
function about(decisions: PolicyDecisions, key: PodId): string | undefined {
  const list = decisions.of({ kind: "pod", key })?.egress;
  if (list === undefined) return undefined;
  const { verdict, policy, rule } = decide(list, { ip: lan, protocol: "tcp", port: 443 });
  return `${verdict} ${policy}/${rule}`;
}

test("a pod's rules are its own: from its create to its end, changed meanwhile, after a restart", async (t) => {
  const config = configuration({});
  using node = openNode(config);
  const decisions = new PolicyDecisions(node.db);
  const web = await node.create({ spec: { name: "web", policy: rules("no-lan") } });
  const free = await node.create({ spec: { name: "free" } });
  t.is(about(decisions, web.id), "deny pod:web/no-lan");
  t.is(about(decisions, free.id), undefined);
  t.deepEqual(decisions.chosenBy(readDocument({ name: "pod:web", ...rules("x") })), {
    pods: ["web"],
    containers: [],
  });
  await node.pods.setRules(web.id, rules("other", "allow"));
  t.is(about(decisions, web.id), "allow pod:web/other");
  t.is(about(new PolicyDecisions(node.db), web.id), "allow pod:web/other", "of rows alone");
  t.like(listInlineRules(node.db), [
    { name: "pod:web", document: { name: "pod:web", ...rules("other", "allow") } },
  ]);
  t.deepEqual(node.records.get(web.id)?.spec.policy, rules("other", "allow"));
  await node.pods.setRules(web.id, undefined);
  t.is(about(decisions, web.id), undefined);
  await node.pods.setRules(web.id, rules("no-lan"));
  await node.pods.delete("web", { force: false });
  t.is(about(decisions, web.id), undefined);
  t.deepEqual(listInlineRules(node.db), []);
});

test("rules that cannot be read are refused with their place, and nothing is made", async (t) => {
  using node = openNode(configuration({}));
  const policy: JsonObject = { rules: [{ name: "a", action: "allow", cidrs: ["10.0.0.300"] }] };
  const refused = await t.throwsAsync(node.create({ spec: { name: "web", policy } }));
  t.like(refused, { code: "ADDRESS_INVALID", field: "policy.rules[0].cidrs[0]" });
  t.deepEqual(node.records.list(), []);
});

test("a pod's rules come before those of its network, and these before policies", async (t) => {
  using node = openNode(configuration({}));
  const decisions = new PolicyDecisions(node.db);
  const web = await node.create({ spec: { name: "web" } });
  const [network] = node.definitions;
  if (network === undefined) throw new Error("There is no network");
  putPolicy(node.db, "a", { name: "a", applies_to: {}, ...rules("named") }, 0);
  decisions.changed();
  t.is(about(decisions, web.id), "deny a/named");
  const row = { state: "ready", configured: true, createdMs: 0 } as const;
  putNetwork(node.db, { ...network, policy: rules("shared", "allow") }, row);
  t.is(about(decisions, web.id), `allow network:${network.name}/shared`);
  await node.pods.setRules(web.id, rules("own"));
  t.is(about(decisions, web.id), "deny pod:web/own");
  t.deepEqual(
    decisions.effectsWithout("pod:web").map(({ shown, change, rule }) => [shown, change, rule]),
    [["web", "opens", "pod:web/own"]],
  );
  t.deepEqual(
    listInlineRules(node.db).map(({ name }) => name),
    [`network:${network.name}`, "pod:web"],
  );
  t.deepEqual(
    decisions.chosenBy(readDocument({ name: `network:${network.name}`, ...rules("x") })),
    {
      pods: ["web"],
      containers: [],
    },
  );
});

test("stored rules that cannot be read any more close their pod, and no other", async (t) => {
  using node = openNode(configuration({}));
  const decisions = new PolicyDecisions(node.db);
  const web = await node.create({ spec: { name: "web", policy: rules("own", "allow") } });
  const free = await node.create({ spec: { name: "free", policy: rules("own", "allow") } });
  await node.pods.setRules(web.id, { rules: "of a later podnetd" });
  t.is(about(decisions, web.id), "deny pod:web/unreadable");
  t.is(about(decisions, free.id), "allow pod:free/own");
});

test("labels changed later change which policies are a pod's, whatever its state, and last", async (t) => {
  const config = configuration({});
  using node = openNode(config);
  const decisions = new PolicyDecisions(node.db);
  const labels = { app: "shop" };
  const { id } = await node.create({ spec: { name: "web", labels, policy: rules("own") } });
  const applies = { labels: { role: "builder" } };
  putPolicy(node.db, "a", { name: "a", applies_to: applies, ...rules("named") }, 0);
  decisions.changed();
  await node.pods.setRules(id, undefined);
  t.is(about(decisions, id), undefined);
  const events = (): number => node.stored("SELECT * FROM events").length;
  const before = events();
  const set = { role: "builder" };
  const row = await node.pods.setLabels("web", { set, remove: ["none"] });
  t.deepEqual(row.spec.labels, { ...labels, ...set });
  t.is(about(decisions, id), "deny a/named");
  await node.pods.setLabels("web", { set, remove: [] });
  t.is(events(), before + 1, "what changes nothing is no event");
  await node.pods.stop("web", { force: false });
  const stopped = await node.pods.setLabels(id, { set: {}, remove: ["role", "app"] });
  t.deepEqual([stopped.state, stopped.spec.labels], ["stopped", {}]);
  t.is(about(new PolicyDecisions(node.db), id), undefined, "of rows alone");
  await node.pods.setLabels(id, { set: Object.fromEntries(many(64)), remove: [] });
  await t.throwsAsync(node.pods.setLabels(id, { set, remove: [] }), { code: "INVALID_ARGUMENT" });
  const now = await node.pods.setLabels(id, { set, remove: ["k0"] });
  t.is(Object.keys(now.spec.labels).length, 64);
});

const many = (count: number): [string, string][] =>
  Array.from({ length: count }, (_, i) => [`k${i}`, ""]);

test("rules that choose by label make decisions follow pods, until they are gone", async (t) => {
  using node = openNode(configuration({}));
  const decisions = new PolicyDecisions(node.db);
  const pods = { labels: { app: "db" } };
  const policy: JsonObject = { rules: [{ name: "db", action: "allow", pods }] };
  const web = await node.create({ spec: { name: "web", policy } });
  const reaches = (): boolean =>
    decisions
      .of({ kind: "pod", key: web.id })
      ?.egress.entries.some(({ rule, to }) => rule === "db" && (to?.ranges.length ?? 0) > 0) ===
    true;
  t.false(reaches());
  t.true(decisions.followsPods);
  await node.create({ spec: { name: "db", labels: { app: "db" } } });
  t.true(reaches());
  await node.pods.setRules(web.id, undefined);
  decisions.changed();
  t.is(decisions.of({ kind: "pod", key: web.id }), undefined);
  t.false(decisions.followsPods);
});
