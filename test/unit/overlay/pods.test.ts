import fc from "fast-check";
import test from "ava";
import { type IpPrefix, parseIp } from "../../../core/address.ts";
import type { IfName, NetworkName, PodId, PodName } from "../../../core/names.ts";
import { parsePrefix } from "../../../overlay/flannel/prefix.ts";
import type { OwnerId } from "../../../overlay/owner.ts";
import {
  hostIdOf,
  hostKey,
  parseRecordKey,
  podKey,
  recordsPrefix,
} from "../../../overlay/pods/keys.ts";
import {
  hostRecordText,
  parseHostRecord,
  parsePodRecord,
  type PodRecord,
  podRecordText,
  type RecordedState,
} from "../../../overlay/pods/record.ts";
import { RemotePods } from "../../../overlay/pods/remote-pods.ts";

const prefix = recordsPrefix(parsePrefix("/coreos.com/network"));
const host = (owner: number, name: string) => hostIdOf(owner as OwnerId, name);
const [one, two, three] = [host(1, "one"), host(2, "two"), host(3, "three")];
const web = "abcdefghijkl" as PodId;

const record = (over: Partial<PodRecord> = {}): PodRecord => ({
  id: web,
  name: "web" as PodName,
  state: "running",
  createdMs: 1000,
  labels: { app: "front", __proto__x: "1" },
  interfaces: [
    {
      network: "default" as NetworkName,
      overlay: "flannel" as NetworkName,
      name: "eth0" as IfName,
      addresses: ["10.5.2.7/24", "fd00:5:2::7/64"] as IpPrefix[],
    },
    {
      network: undefined,
      overlay: undefined,
      name: "eth1" as IfName,
      addresses: ["192.168.1.9/24"] as IpPrefix[],
    },
  ],
  ...over,
});

const known = (): RemotePods => new RemotePods(prefix, one);
const at = (where: typeof one, over: Partial<PodRecord> = {}) => ({
  key: podKey(prefix, where, over.id ?? web),
  text: podRecordText(record(over)),
});

test("records are kept apart from every overlay, however it is called", (t) => {
  const own: string = prefix;
  t.is(own, "/podnet/coreos.com/network");
  for (const overlay of ["/podnet", "/podnet/a", "/podnet-records", "/podnet-records/x", "/a"]) {
    const theirs = recordsPrefix(parsePrefix(overlay));
    t.false(`${theirs}/`.startsWith(`${overlay}/`), theirs);
    t.false(`${overlay}/`.startsWith(`${theirs}/`), theirs);
    t.notRegex(theirs, /subnets|config/);
  }
});

test("a key says whose it is, whatever the host is called, and nothing else is one", (t) => {
  for (const name of ["one", "a.b-c_d", "größer als 64/".repeat(9), "", "..", "subnets"]) {
    const id = host(0xfedc_ba98, name);
    t.deepEqual(parseRecordKey(prefix, hostKey(prefix, id)), { kind: "host", host: id });
    t.deepEqual(parseRecordKey(prefix, podKey(prefix, id, web)), {
      kind: "pod",
      host: id,
      pod: web,
    });
  }
  for (const key of [
    prefix,
    `${prefix}/hosts`,
    `${prefix}/hosts/one`,
    `${prefix}/hosts/${one}/`,
    `${prefix}/hosts/${one}/${web}`,
    `${prefix}/pods/${one}`,
    `${prefix}/pods/${one}/web`,
    `${prefix}/pods/${one}/${web}/x`,
    `${prefix}x/hosts/${one}`,
    `/coreos.com/network/subnets/10.5.2.0-24`,
    `${prefix}/hosts/00000001-${"a".repeat(600)}`,
  ])
    t.is(parseRecordKey(prefix, key), undefined, key);
});

test("a record is read as it was written; a newer, broken or boundless one is none", (t) => {
  t.deepEqual(parsePodRecord(podRecordText(record())), record());
  const written = JSON.parse(podRecordText(record())) as Record<string, unknown>;
  t.deepEqual(parsePodRecord(JSON.stringify({ ...written, later: 1 })), record());
  for (const wrong of [
    { version: 2 },
    { version: undefined },
    { id: "web" },
    { name: "Web" },
    { state: "dancing" },
    { createdMs: -1 },
    { createdMs: "1" },
    { createdMs: 1.5 },
    { labels: [] },
    { labels: { a: 1 } },
    { labels: { ["k".repeat(64)]: "" } },
    { labels: { a: "v".repeat(256) } },
    { labels: Object.fromEntries(Array.from({ length: 65 }, (_, i) => [`k${i}`, ""])) },
    { interfaces: {} },
    { interfaces: [null] },
    { interfaces: [{ name: "eth0" }] },
    { interfaces: [{ name: "eth0", addresses: ["10.5.2.7"] }] },
    { interfaces: [{ name: "eth0", addresses: [], network: "No!" }] },
    { interfaces: [{ name: "eth0", addresses: [], overlay: 7 }] },
    { interfaces: Array.from({ length: 33 }, () => ({ name: "eth0", addresses: [] })) },
  ])
    t.is(
      parsePodRecord(JSON.stringify({ ...written, ...wrong })),
      undefined,
      JSON.stringify(wrong),
    );
  for (const text of ["", "null", "[]", "1", `${podRecordText(record())}${" ".repeat(65_536)}`])
    t.is(parsePodRecord(text), undefined);
  const self = { name: "one", leases: ["/coreos.com/network/subnets/10.5.1.0-24"] };
  t.deepEqual(parseHostRecord(hostRecordText(self)), self);
  t.is(
    parseHostRecord(JSON.stringify({ version: 1, name: "x".repeat(256), leases: [] })),
    undefined,
  );
  t.is(parseHostRecord(JSON.stringify({ version: 1, name: "one", leases: [1] })), undefined);
});

test("pods of others are found by name and by address, on their overlay alone, while they run", (t) => {
  const remote = known();
  remote.put({
    key: hostKey(prefix, two),
    text: hostRecordText({ name: "two.lan", leases: ["L2"] }),
  });
  remote.put(at(two));
  t.deepEqual(remote.addressesOf("flannel", "web"), [parseIp("10.5.2.7"), parseIp("fd00:5:2::7")]);
  t.is(remote.nameAt("flannel", parseIp("fd00:5:2::7")), "web" as PodName);
  t.is(remote.addressesOf("blue", "web"), undefined);
  t.is(remote.nameAt("flannel", parseIp("192.168.1.9")), undefined);
  t.is(remote.hostOf("L2"), "two.lan");
  t.like(remote.list()[0], { host: two, hostname: "two.lan", name: "web" });
  for (const state of ["stopped", "failed", "creating", "deleting"] as RecordedState[]) {
    remote.put(at(two, { state }));
    t.is(remote.addressesOf("flannel", "web"), undefined, state);
    t.is(remote.nameAt("flannel", parseIp("10.5.2.7")), undefined, state);
    t.is(remote.list()[0]?.state, state);
  }
  remote.put(at(two, { state: "paused" }));
  t.is(remote.addressesOf("flannel", "web")?.length, 2);
  remote.replace([]);
  t.deepEqual([remote.list(), remote.hostOf("L2")], [[], undefined]);
});

test("of one name the oldest has it, by every host's reckoning; this host's own are none of the others", (t) => {
  const remote = known();
  const b = "bbbbbbbbbbbb" as PodId;
  const addresses = ["10.5.3.7/24"] as IpPrefix[];
  const interfaces = record()
    .interfaces.slice(0, 1)
    .map((each) => ({ ...each, addresses }));
  const at3 = (over: Partial<PodRecord>) => at(three, { id: b, interfaces, ...over });
  remote.put(at(one));
  t.deepEqual(remote.list(), []);
  remote.put(at(two, { createdMs: 5 }));
  remote.put(at3({ createdMs: 4 }));
  t.deepEqual(remote.addressesOf("flannel", "web"), [parseIp("10.5.3.7")]);
  remote.put(at3({ createdMs: 5 }));
  t.is(remote.addressesOf("flannel", "web")?.[0], parseIp("10.5.2.7"));
  remote.delete(at(two).key);
  t.deepEqual(remote.addressesOf("flannel", "web"), [parseIp("10.5.3.7")]);
});

test("what cannot be read is counted for as long as it is there", (t) => {
  const remote = known();
  remote.put({ key: `${prefix}/elsewhere`, text: "" });
  remote.put({ key: podKey(prefix, two, web), text: "{}" });
  remote.put({
    key: podKey(prefix, three, web),
    text: podRecordText(record({ id: "bbbbbbbbbbbb" as PodId })),
  });
  remote.put({ key: hostKey(prefix, two), text: "[]" });
  t.is(remote.skipped, 4);
  remote.put(at(two));
  t.is(remote.skipped, 3);
  t.is(remote.list().length, 1);
  remote.replace([at(two)]);
  t.is(remote.skipped, 0);
});

test("whatever comes in whatever order, it is as if only what is there had come", (t) => {
  const ids = ["aaaaaaaaaaaa", "bbbbbbbbbbbb", "cccccccccccc"] as PodId[];
  const keys = [one, two, three].flatMap((each) => ids.map((id) => podKey(prefix, each, id)));
  const texts = fc.record({
    id: fc.constantFrom(...ids),
    name: fc.constantFrom("web", "db") as fc.Arbitrary<PodName>,
    state: fc.constantFrom<RecordedState>("running", "stopped"),
    createdMs: fc.integer({ min: 0, max: 3 }),
  });
  const change = fc.record({ key: fc.constantFrom(...keys), put: fc.option(texts) });
  fc.assert(
    fc.property(fc.array(change, { maxLength: 40 }), (changes) => {
      const remote = known();
      const there = new Map<string, string>();
      for (const { key, put } of changes) {
        const text = put === null ? undefined : podRecordText(record(put));
        if (text === undefined) {
          there.delete(key);
          remote.delete(key);
        } else {
          there.set(key, text);
          remote.put({ key, text });
        }
      }
      const anew = known();
      anew.replace([...there].map(([key, text]) => ({ key, text })));
      t.deepEqual(remote.list(), anew.list());
      t.is(remote.skipped, anew.skipped);
      for (const name of ["web", "db"])
        t.deepEqual(remote.addressesOf("flannel", name), anew.addressesOf("flannel", name));
    }),
  );
});
