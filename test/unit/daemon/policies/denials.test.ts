import test from "ava";
import { type Denial, Denials } from "../../../../daemon/policies/denials.ts";
import { denialText } from "../../../../daemon/policies/denial-watch.ts";
import { ruleNumber } from "../../../../network/firewall/nftables/denials.ts";
import type { FragmentKey } from "../../../../network/model/desired.ts";
import { compile } from "../../../../policy/compile.ts";
import { readPolicy } from "../../../../policy/read-policy.ts";

const { signal } = new AbortController();
const rules = [{ name: "lan", reason: "It is for people", action: "deny", cidrs: ["10.0.0.0/8"] }];
const decisions = compile([readPolicy({ name: "p", rules })], {
  pods: [],
  host: [],
  hostServices: [],
  cloudMetadata: false,
});
const pod: FragmentKey = { kind: "pod", key: "aaa" };
const packets = (owner: FragmentKey, rule: string, count: number) => ({
  owner,
  rule: ruleNumber("egress", "p", rule),
  packets: count,
  bytes: 60 * count,
});
const question: Denial = {
  holder: "17",
  direction: "egress",
  policy: "p",
  rule: "default",
  reason: "no rule allows it",
  unit: "questions",
  count: 1,
};

function open() {
  const policed = new Set(["aaa", "17"]);
  const denials = new Denials({
    observe: {
      denials: () => Promise.resolve([packets(pod, "lan", 7), packets(pod, "former", 2)]),
    },
    decisionsOf: ({ key }) => (policed.has(key) ? decisions : undefined),
  });
  return { denials, policed };
}

test("denials have the words of their rules; what a former rule counted is none's", async (t) => {
  const { denials } = open();
  const lan: Denial = {
    holder: "aaa",
    direction: "egress",
    policy: "p",
    rule: "lan",
    reason: "It is for people",
    unit: "packets",
    count: 7,
  };
  t.deepEqual(await denials.list(signal), [lan]);
});

test("what the relay and the resolver deny is counted by holder and rule, and goes with the holder", async (t) => {
  const { denials, policed } = open();
  denials.add(question);
  denials.add({ ...question, count: 4 });
  denials.add({ ...question, unit: "connections" });
  const shown = async () =>
    (await denials.list(signal, ["17"])).map(({ unit, count }) => `${unit} ${count}`);
  t.deepEqual(await shown(), ["questions 5", "connections 1"]);
  policed.delete("17");
  t.deepEqual(await shown(), []);
  policed.add("17");
  t.deepEqual(await shown(), [], "another one begins anew");
});

test("rules beyond many are counted together, and none is lost", async (t) => {
  const { denials } = open();
  for (let n = 0; n < 1500; n++) denials.add({ ...question, rule: `rule-${n}` });
  const found = await denials.list(signal, ["17"]);
  t.is(found.length, 1001);
  t.is(
    found.reduce((sum, { count }) => sum + count, 0),
    1500,
  );
  t.is(found.at(-1)?.rule, "others");
});

test("an event says who denied what, and why", (t) => {
  t.is(
    denialText("container c1, eth0 on default", [
      { ...question, count: 3 },
      { ...question, rule: "lan", reason: "", unit: "packets" },
    ]),
    "container c1, eth0 on default: 3 questions denied (egress) by p/default: no rule allows it; 1 packet denied (egress) by p/lan",
  );
});
