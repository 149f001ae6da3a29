import { setTimeout as delay } from "node:timers/promises";
import test from "ava";
import { isPodnetError } from "../../core/errors.ts";
import { connectEtcd, type EtcdTiming } from "../../etcd/client.ts";
import type { Etcd, Watched } from "../../etcd/etcd.ts";
import { type EtcdLab, isUncertain, startEtcd } from "../lab/etcd.ts";
import type { EtcdMember } from "../lab/etcd-member.ts";

let lab: EtcdLab;

test.before(async () => {
  lab = await startEtcd({ members: 3, tls: true });
});

test.after.always(async () => {
  await lab?.[Symbol.asyncDispose]();
});

/** Whatever the test before left: all of them run, and one leads. */
test.beforeEach(async () => {
  for (const member of lab.members) {
    if (member.running) member.thaw();
    else member.start();
  }
  await lab.ready();
});

/** A client that asks these members in this order. */
const asking = (members: readonly EtcdMember[], timing?: Partial<EtcdTiming>): Etcd & Disposable =>
  connectEtcd({
    ...lab.client,
    endpoints: members.map(({ endpoint }) => endpoint),
    random: () => 0,
    ...(timing === undefined ? {} : { timing }),
  });

/** All members, one that does not lead first, so that the others have a leader without it. */
async function followerFirst(): Promise<[EtcdMember, ...EtcdMember[]]> {
  const leader = await lab.leader();
  const [follower, other] = lab.members.filter((member) => member !== leader);
  return [follower as EtcdMember, other as EtcdMember, leader];
}

/** Until an election is over. */
async function eventually<T>(call: () => Promise<T>): Promise<T> {
  for (const end = performance.now() + 30_000; ; await delay(20)) {
    try {
      return await call();
    } catch (error) {
      if (!isPodnetError(error, "ETCD_UNREACHABLE") || performance.now() > end) throw error;
    }
  }
}

/** What a watch ends with; `alive` is called at its first word. */
async function endOf(watched: AsyncIterable<Watched>, alive: () => void): Promise<unknown> {
  try {
    for await (const one of watched) if (one.kind === "alive") alive();
    return undefined;
  } catch (error) {
    return error;
  }
}

test.serial("a member that was killed is passed over", async (t) => {
  const [follower, ...others] = await followerFirst();
  using etcd = asking([follower, ...others]);
  await etcd.put("/failover/killed", "before");
  await follower.kill();
  const { kvs } = await etcd.range({ key: "/failover/killed" });
  t.is(kvs.length, 1);
  await t.notThrowsAsync(etcd.put("/failover/killed", "after"));
  // And by one that has never met it alive.
  using late = asking([follower, ...others]);
  await t.notThrowsAsync(late.put("/failover/killed", "again"));
  using alone = asking([follower]);
  const error = await t.throwsAsync(alone.put("/failover/killed", "never"));
  t.true(isPodnetError(error, "ETCD_UNREACHABLE"));
  t.false(isUncertain(error));
});

test.serial(
  "a member that stands still is passed over, though its kernel takes connections",
  async (t) => {
    const [follower, ...others] = await followerFirst();
    using etcd = asking([follower, ...others], { answerMs: 300 });
    using late = asking([follower, ...others], { answerMs: 300 });
    await etcd.put("/failover/frozen", "before");
    await follower.freeze();
    const begin = performance.now();
    t.is((await etcd.range({ key: "/failover/frozen" })).kvs.length, 1);
    t.log(`a call noticed it after ${Math.round(performance.now() - begin)} ms`);
    await t.notThrowsAsync(etcd.put("/failover/frozen", "after"));
    await t.notThrowsAsync(late.put("/failover/frozen", "again"));
  },
);

test.serial("a write whose answer was lost is not done again elsewhere, and says so", async (t) => {
  const [follower, ...others] = await followerFirst();
  // (No ping beforehand, which would have shown it.)
  using first = asking([follower, ...others], { answerMs: 60_000 });
  await first.range({ key: "/failover/uncertain" });
  await follower.freeze();
  const error = await t.throwsAsync(first.put("/failover/uncertain", ""));
  t.true(isUncertain(error));
  using other = asking(others);
  t.is((await eventually(() => other.range({ key: "/failover/uncertain" }))).kvs.length, 0);
  // The next call goes elsewhere.
  await t.notThrowsAsync(eventually(() => first.put("/failover/certain", "")));
});

test.serial(
  "a watch on a member that stands still ends, and the next one is on another",
  async (t) => {
    const [follower, ...others] = await followerFirst();
    using etcd = asking([follower, ...others]);
    const begun = Promise.withResolvers<void>();
    const ended = endOf(etcd.watch({ prefix: "/failover/" }, { from: 1n }), begun.resolve);
    await begun.promise;
    await follower.freeze();
    const begin = performance.now();
    const error = await ended;
    t.log(`a watch noticed it after ${Math.round(performance.now() - begin)} ms`);
    t.true(isPodnetError(error, "ETCD_UNREACHABLE"), String(error));
    t.regex(String(error), /no word/);
    for await (const { kind } of etcd.watch({ prefix: "/failover/" }, { from: 1n })) {
      t.is(kind, "alive");
      break;
    }
  },
);

test.serial("a watch on a member without a leader ends, though the member is well", async (t) => {
  const [member, ...others] = await followerFirst();
  using etcd = asking([member], { callMs: 20_000 });
  const begun = Promise.withResolvers<void>();
  const ended = endOf(etcd.watch({ prefix: "/failover/" }, { from: 1n }), begun.resolve);
  await begun.promise;
  for (const other of others) await other.freeze();
  const error = await ended;
  t.true(isPodnetError(error, "ETCD_UNREACHABLE"), String(error));
  t.regex(String(error), /no leader/);
  const refused = await t.throwsAsync(etcd.put("/failover/leaderless", ""));
  t.regex(String(refused), /no leader/);
  t.false(isUncertain(refused));
  for (const other of others) other.thaw();
  await t.notThrowsAsync(eventually(() => etcd.put("/failover/leaderless", "")));
});

test.serial("writes go on when the leader was killed, and when all were", async (t) => {
  const leader = await lab.leader();
  using etcd = asking(lab.members);
  const { cluster } = await eventually(() => etcd.put("/failover/all", "1"));
  await leader.kill();
  await t.notThrowsAsync(eventually(() => etcd.put("/failover/all", "2")));
  await Promise.all(lab.members.map((member) => member.kill()));
  const error = await t.throwsAsync(etcd.range({ key: "/failover/all" }));
  t.true(isPodnetError(error, "ETCD_UNREACHABLE"));
  const write = await t.throwsAsync(etcd.put("/failover/all", "3"));
  t.true(isPodnetError(write, "ETCD_UNREACHABLE"));
  t.false(isUncertain(write));
  for (const member of lab.members) member.start();
  await lab.ready();
  const { kvs, cluster: same } = await eventually(() => etcd.range({ key: "/failover/all" }));
  t.is(Buffer.from(kvs[0]?.value ?? []).toString(), "2");
  t.is(same, cluster);
});
