import test from "ava";
import { parseIp } from "../../../core/address.ts";
import { compile } from "../../../policy/compile.ts";
import { canonicalName, type DomainName } from "../../../policy/domain.ts";
import { readPolicy } from "../../../policy/read-policy.ts";
import type { RelayedPod } from "../../../relay/messages.ts";
import { routeOf } from "../../../relay/route.ts";
import { type PodEntry, Table } from "../../../relay/table.ts";

const name = (text: string): DomainName => canonicalName(text) as DomainName;
const [one, two, six] = ["203.0.113.1", "203.0.113.2", "2001:db8::1"].map((ip) => parseIp(ip)) as [
  ReturnType<typeof parseIp>,
  ReturnType<typeof parseIp>,
  ReturnType<typeof parseIp>,
];
const rules = [
  { name: "bad", action: "deny", cidrs: ["203.0.113.66"] },
  { name: "api", action: "allow", domains: ["*.example"] },
  { name: "own", action: "allow", cidrs: ["203.0.113.2"] },
];

const pod = (id: string, ip: string): RelayedPod => ({
  id,
  addresses: [parseIp(ip)],
  egress: compile([readPolicy({ name: "p", rules })], {
    pods: [],
    host: [parseIp("203.0.113.9")],
    hostServices: [],
    cloudMetadata: false,
  }).egress,
});

function open(): { table: Table; changed: string[]; clock: { time: number } } {
  const clock = { time: 0 };
  const changed: string[] = [];
  const table = new Table({ now: () => clock.time, monotonic: () => clock.time }, (id) => {
    changed.push(id);
  });
  return { table, changed, clock };
}
const idAt = (table: Table, ip: string): string | undefined => table.byAddress(parseIp(ip))?.pod.id;

test("a whole state replaces what was, in one step; pods that it does not name are gone", (t) => {
  const { table, changed } = open();
  for (const each of [pod("a", "10.0.0.2"), pod("b", "10.0.0.3")])
    table.apply({ type: "pod", pod: each });
  table.apply({ type: "begin" });
  table.apply({ type: "pod", pod: pod("c", "10.0.0.4") });
  table.apply({ type: "pod", pod: pod("d", "10.0.0.5") });
  table.apply({ type: "gone", id: "d" });
  t.is(idAt(table, "10.0.0.2"), "a", "before the commit all is as it was");
  t.is(idAt(table, "10.0.0.4"), undefined);
  changed.length = 0;
  table.apply({ type: "commit" });
  t.is(idAt(table, "10.0.0.2"), undefined);
  t.is(idAt(table, "10.0.0.4"), "c");
  t.is(idAt(table, "10.0.0.5"), undefined);
  t.deepEqual(changed, ["a", "b", "c"]);
  // One without beginning names no pod.
  table.apply({ type: "commit" });
  t.is(idAt(table, "10.0.0.4"), undefined);
});

test("an address belongs to the pod that had it last, and a pod that is gone takes none with it", (t) => {
  const { table } = open();
  table.apply({ type: "pod", pod: pod("a", "10.0.0.2") });
  table.apply({ type: "pod", pod: pod("b", "10.0.0.2") });
  t.is(idAt(table, "10.0.0.2"), "b");
  table.apply({ type: "gone", id: "a" });
  t.is(idAt(table, "10.0.0.2"), "b");
  table.apply({ type: "pod", pod: pod("b", "10.0.0.7") });
  t.is(idAt(table, "10.0.0.2"), undefined);
  table.apply({ type: "gone", id: "b" });
  t.is(idAt(table, "10.0.0.7"), undefined);
});

test("answers hold for their time, are the pod's own, and outlive a change of its policy", (t) => {
  const { table, clock } = open();
  const answer = (ip: typeof one, seconds: number): void =>
    table.apply({ type: "answer", id: "a", name: name("a.example"), addresses: [ip], seconds });
  answer(one, 10);
  table.apply({ type: "pod", pod: pod("a", "10.0.0.2") });
  table.apply({ type: "pod", pod: pod("b", "10.0.0.3") });
  const addresses = (id = "a"): readonly string[] =>
    table.byId(id)?.addressesOf(name("a.example")) ?? [];
  t.deepEqual(addresses(), [], "a pod that is not there learns nothing");
  answer(one, 10);
  answer(two, 20);
  answer(two, 5);
  table.apply({ type: "pod", pod: pod("a", "10.0.0.9") });
  t.deepEqual([addresses(), addresses("b")], [[one, two], []]);
  clock.time = 10_000;
  t.deepEqual(addresses(), [two], "a shorter answer does not end a longer one");
  clock.time = 20_000;
  t.deepEqual(addresses(), []);
});

test("a pod that asks for ever more names forgets the oldest", (t) => {
  const { table } = open();
  table.apply({ type: "pod", pod: pod("a", "10.0.0.2") });
  for (let i = 0; i <= 10_000; i++)
    table.apply({
      type: "answer",
      id: "a",
      name: name(`n${i}.example`),
      addresses: [one],
      seconds: 9,
    });
  t.deepEqual(table.byId("a")?.addressesOf(name("n0.example")), []);
  t.deepEqual(table.byId("a")?.addressesOf(name("n1.example")), [one]);
});

test("a route leads to the name's own address, one of the destination's family first", (t) => {
  const { table } = open();
  table.apply({ type: "pod", pod: pod("a", "10.0.0.2") });
  const entry = table.byId("a") as PodEntry;
  const answer = (text: string, ...ips: readonly string[]): void =>
    entry.answer(
      name(text),
      ips.map((ip) => parseIp(ip)),
      9,
    );
  answer("a.example", six, one, "203.0.113.3");
  const route = (ip: string, said: string | null): string => {
    const { ip: to, decision } = routeOf(
      entry,
      { ip: parseIp(ip), port: 443 },
      said === null ? null : name(said),
      (own) => own === "203.0.113.77" || own === "203.0.113.4",
    );
    return `${to ?? "denied"} ${decision.rule}`;
  };
  t.is(route("203.0.113.3", "a.example"), "203.0.113.3 api");
  t.is(route("203.0.113.5", "a.example"), `${one} api`);
  t.is(route("2001:db8::9", "a.example"), `${six} api`);
  t.is(route("203.0.113.5", "never.example"), "denied api");
  t.is(route("203.0.113.5", "a.test"), "denied default");
  t.is(route(two, null), `${two} own`);
  t.is(route(two, "a.test"), `${two} own`);
  answer("six.example", six);
  t.is(route("203.0.113.5", "six.example"), `${six} api`);
  // Where the name leads is asked about once more.
  answer("bad.example", "203.0.113.66");
  t.is(route("203.0.113.5", "bad.example"), "denied bad");
  answer("host.example", "203.0.113.9");
  t.is(route("203.0.113.5", "host.example"), "denied host");
  answer("inside.example", "10.9.9.9");
  t.is(route("203.0.113.5", "inside.example"), "denied default");
  // What is the host's own, at any of its addresses.
  answer("own.example", "203.0.113.77");
  t.is(route("203.0.113.5", "own.example"), "denied host");
  t.is(route("203.0.113.4", null), "denied default");
});
