import { setTimeout as delay } from "node:timers/promises";
import test from "ava";
import { type IpPrefix, parseIp } from "../../core/address.ts";
import { systemClock } from "../../core/clock.ts";
import type { IfName, NetworkName, PodId, PodName } from "../../core/names.ts";
import { HostRecords, type RecordsEtcd } from "../../daemon/overlays/records/host-records.ts";
import { connectEtcd } from "../../etcd/client.ts";
import type { Etcd } from "../../etcd/etcd.ts";
import { openLog } from "../../linux/log.ts";
import { parsePrefix } from "../../overlay/flannel/prefix.ts";
import type { OwnerId } from "../../overlay/owner.ts";
import { hostIdOf, hostKey, podKey, recordsPrefix } from "../../overlay/pods/keys.ts";
import type { PodRecord } from "../../overlay/pods/record.ts";
import { type EtcdLab, startEtcd } from "../lab/etcd.ts";

// Hosts that report their pods to each other by a real etcd; the pods themselves are said by the
// test.

let lab: EtcdLab;
test.before(async () => {
  lab = await startEtcd();
});
test.after.always(() => lab?.[Symbol.asyncDispose]());

const patient = { callMs: 10_000, answerMs: 10_000 };

/** Waits until something is so; what it was last when it never is. */
async function until<T>(look: () => T | Promise<T>, wanted: (now: T) => boolean): Promise<T> {
  const end = Date.now() + 30_000;
  for (;;) {
    const now = await look();
    if (wanted(now) || Date.now() > end) return now;
    await delay(20);
  }
}

interface TestHost extends AsyncDisposable {
  readonly records: HostRecords;
  readonly etcd: Etcd;
  /** Keys of its own that etcd has. */
  keys(): Promise<string[]>;
  pods: PodRecord[];
}

interface Options {
  readonly ttlSeconds?: number;
  readonly etcd?: EtcdLab;
  /** What is asked of etcd that ends something or keeps it. */
  readonly calls?: string[];
  /** Of the test; each has an overlay of its own. */
  readonly overlay: string;
}

const prefixOf = (overlay: string) => recordsPrefix(parsePrefix(`/${overlay}`));
const idOf = (n: number) => hostIdOf(n as OwnerId, `host${n}`);
const podId = (letter: string) => letter.repeat(12) as PodId;

const pod = (
  id: string,
  name: string,
  address: string,
  over: Partial<PodRecord> = {},
): PodRecord => ({
  id: podId(id),
  name: name as PodName,
  state: "running",
  createdMs: 1000,
  labels: {},
  interfaces: [
    {
      network: "default" as NetworkName,
      overlay: "flannel" as NetworkName,
      name: "eth0" as IfName,
      addresses: [`${address}/24` as IpPrefix],
    },
  ],
  ...over,
});

function openHost(n: number, options: Options): TestHost {
  const etcd = connectEtcd({ ...(options.etcd ?? lab).client, timing: patient });
  const prefix = prefixOf(options.overlay);
  const host: TestHost = {
    etcd,
    pods: [],
    records: new HostRecords({
      etcd: options.calls === undefined ? etcd : noting(etcd, options.calls),
      prefix,
      host: idOf(n),
      clock: systemClock,
      random: Math.random,
      log: openLog({ component: "test", level: "silent" }),
      self: () => ({ name: `host${n}`, leases: [`lease${n}`] }),
      pods: () => host.pods,
      pod: (id) => host.pods.find((each) => each.id === id),
      ...(options.ttlSeconds === undefined ? {} : { ttlSeconds: options.ttlSeconds }),
    }),
    async keys() {
      const { kvs } = await etcd.range({ prefix: `${prefix}/` });
      return kvs.map(({ key }) => key).filter((key) => key.includes(idOf(n)));
    },
    async [Symbol.asyncDispose]() {
      await host.records[Symbol.asyncDispose]();
      etcd[Symbol.dispose]();
    },
  };
  host.records.start();
  return host;
}

/** An etcd that notes what keeps something or ends it. */
const noting = (etcd: Etcd, calls: string[]): RecordsEtcd => ({
  range: (...args) => etcd.range(...args),
  watch: (...args) => etcd.watch(...args),
  grant: (...args) => etcd.grant(...args),
  async txn(txn, options) {
    for (const { kind } of txn.do) calls.push(kind);
    return await etcd.txn(txn, options);
  },
  async keepAlive(lease, options) {
    const left = await etcd.keepAlive(lease, options);
    calls.push(`keepAlive ${left}`);
    return left;
  },
  async revoke(lease, options) {
    calls.push("revoke");
    return await etcd.revoke(lease, options);
  },
});

const namesOn = ({ records }: TestHost): string[] =>
  records.remote.list().map(({ hostname, name, state }) => `${hostname}/${name} ${state}`);
const same = (wanted: readonly string[]) => (now: readonly string[]) =>
  now.join() === wanted.join();

test("each host sees the others' pods as they come, change and go, and none of its own", async (t) => {
  const overlay = "come-and-go";
  await using one = openHost(1, { overlay });
  await using two = openHost(2, { overlay });
  one.pods = [pod("a", "web", "10.5.1.2"), pod("b", "db", "10.5.1.3", { createdMs: 2000 })];
  one.records.podsChanged();
  two.pods = [pod("c", "web", "10.5.2.2", { createdMs: 500 })];
  two.records.podsChanged();
  const wanted = ["host1/web running", "host1/db running"];
  t.deepEqual(await until(() => namesOn(two), same(wanted)), wanted);
  t.deepEqual(await until(() => namesOn(one), same(["host2/web running"])), ["host2/web running"]);
  t.deepEqual(one.records.remote.addressesOf("flannel", "web"), [parseIp("10.5.2.2")]);
  t.is(two.records.remote.nameAt("flannel", parseIp("10.5.1.3")), "db" as PodName);
  t.is(await until(() => two.records.remote.hostOf("lease1"), Boolean), "host1");
  one.pods = [pod("a", "web", "10.5.1.2", { state: "stopped" })];
  one.records.podChanged(podId("a"));
  one.records.podChanged(podId("b"));
  t.deepEqual(await until(() => namesOn(two), same(["host1/web stopped"])), ["host1/web stopped"]);
  t.is(two.records.staleMs, undefined);
  // A host that is not to be here any more removes all of its own, and nothing of others.
  await one.records.withdraw(AbortSignal.timeout(10_000));
  t.deepEqual(await one.keys(), []);
  t.deepEqual(await until(() => namesOn(two), same([])), []);
  t.is((await two.keys()).length, 2);
});

test("records are kept alive, stay when podnetd ends, and end when no podnetd renews them", async (t) => {
  const overlay = "dead";
  await using two = openHost(2, { overlay, ttlSeconds: 60 });
  const wanted = ["host1/web running"];
  const calls: string[] = [];
  {
    await using one = openHost(1, { overlay, ttlSeconds: 2, calls });
    one.pods = [pod("a", "web", "10.5.1.2")];
    one.records.podsChanged();
    t.deepEqual(await until(() => namesOn(two), same(wanted)), wanted);
    const kept = () => calls.filter((call) => call === "keepAlive 2").length;
    t.true((await until(kept, (n) => n >= 3)) >= 3);
    calls.length = 0;
  }
  t.deepEqual(
    calls.filter((call) => call.startsWith("revoke") || call.startsWith("delete")),
    [],
  );
  t.deepEqual(await until(() => namesOn(two), same([])), []);
});

test("a host puts right what was lost, left over from before, or written by others", async (t) => {
  const overlay = "repair";
  const prefix = prefixOf(overlay);
  {
    await using before = openHost(1, { overlay, ttlSeconds: 3600 });
    before.pods = [pod("a", "old", "10.5.1.2"), pod("b", "web", "10.5.1.3")];
    before.records.podsChanged();
    await until(
      () => before.keys(),
      (keys) => keys.length === 3,
    );
  }
  await using two = openHost(2, { overlay });
  await using one = openHost(1, { overlay });
  one.pods = [pod("b", "web", "10.5.1.3")];
  one.records.podsChanged();
  const own = [hostKey(prefix, idOf(1)), podKey(prefix, idOf(1), podId("b"))];
  t.deepEqual(await until(() => one.keys(), same(own)), own);
  const leaseOf = async (): Promise<bigint> => {
    const { kvs } = await one.etcd.range({ key: own[1] as string });
    return kvs[0]?.lease ?? 0n;
  };
  // Its lease ends under it.
  const lease = await until(leaseOf, (now) => now !== 0n);
  await one.etcd.revoke(lease);
  t.not(await until(leaseOf, (now) => now !== 0n && now !== lease), lease);
  t.deepEqual(await until(() => one.keys(), same(own)), own);
  // Another client writes into it, takes from it, adds to it.
  await one.etcd.put(own[1] as string, "{}");
  await one.etcd.put(podKey(prefix, idOf(1), podId("c")), "{}");
  await one.etcd.delete({ key: own[0] as string });
  t.deepEqual(await until(() => one.keys(), same(own)), own);
  const wanted = ["host1/web running"];
  t.deepEqual(await until(() => namesOn(two), same(wanted)), wanted);
  t.is(
    await until(
      () => two.records.remote.skipped,
      (n) => n === 0,
    ),
    0,
  );
});

test("many pods go in few transactions, and what cannot be read is passed over", async (t) => {
  const overlay = "many";
  await using one = openHost(1, { overlay });
  await using two = openHost(2, { overlay });
  await one.etcd.put(podKey(prefixOf(overlay), idOf(3), podId("a")), '{"version":9}');
  t.is(
    await until(
      () => two.records.remote.skipped,
      (n) => n === 1,
    ),
    1,
  );
  const letters = "abcdefghijklmnopqrstuvwxyz234567";
  one.pods = Array.from({ length: 350 }, (_, i) => {
    const id = `${letters[i >> 5]}${letters[i & 31]}`.padEnd(12, "a") as PodId;
    return { ...pod("a", `pod${i}`, "10.5.1.2"), id };
  });
  one.records.podsChanged();
  t.is(
    await until(
      () => two.records.remote.list().length,
      (n) => n === 350,
    ),
    350,
  );
  t.is(two.records.remote.skipped, 1);
});

test("etcd away: what was last known stays, with its age; back, what changed meanwhile comes", async (t) => {
  await using own = await startEtcd();
  const overlay = "away";
  await using one = openHost(1, { overlay, etcd: own });
  await using two = openHost(2, { overlay, etcd: own });
  one.pods = [pod("a", "web", "10.5.1.2")];
  one.records.podsChanged();
  const wanted = ["host1/web running"];
  t.deepEqual(await until(() => namesOn(two), same(wanted)), wanted);
  const [member] = own.members;
  await member?.kill();
  t.true(
    (await until(
      () => two.records.staleMs,
      (ms) => ms !== undefined,
    )) !== undefined,
  );
  one.pods = [pod("a", "web", "10.5.1.2", { state: "stopped" })];
  one.records.podsChanged();
  t.deepEqual(namesOn(two), wanted);
  t.deepEqual(two.records.remote.addressesOf("flannel", "web"), [parseIp("10.5.1.2")]);
  member?.start();
  await own.ready();
  t.deepEqual(await until(() => namesOn(two), same(["host1/web stopped"])), ["host1/web stopped"]);
  t.is(
    await until(
      () => two.records.staleMs,
      (ms) => ms === undefined,
    ),
    undefined,
  );
});
