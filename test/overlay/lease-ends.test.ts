import test from "ava";
import { systemClock } from "../../core/clock.ts";
import { LeaseEnds } from "../../daemon/overlays/lease/lease-ends.ts";
import { connectEtcd } from "../../etcd/client.ts";
import { EtcdStore } from "../../overlay/etcd-store.ts";
import { startEtcd } from "../lab/etcd.ts";

/** Hosts of a large overlay; fewer where time is short. */
const many = process.env["PODNET_TEST_FULL"] === "1" ? 4000 : 200;

test("the ends of many hosts' leases are read of a real etcd, a bounded number at once, and not at all when it is away", async (t) => {
  t.timeout(120_000);
  await using lab = await startEtcd();
  // Long enough for a machine that is busy: what is looked at is what comes of it.
  using etcd = connectEtcd({ ...lab.client, timing: { callMs: 10_000, answerMs: 10_000 } });
  const store = new EtcdStore(etcd);
  const ends = new LeaseEnds({
    store,
    clock: systemClock,
    limits: { most: many, lookMs: 60_000, keptMs: 0 },
  });
  const signal = AbortSignal.timeout(100_000);
  const grants = new Set<bigint>();
  for (let n = 0; n < many; n++) grants.add(await store.grant(undefined, 1000 + n, signal));
  const [first = 0n, second = 0n] = grants;
  await store.revoke(second, signal);
  const before = performance.now();
  const known = await ends.of(grants);
  t.log(`${many} leases in ${Math.round(performance.now() - before)} ms`);
  t.is(known.size, many - 1);
  t.false(known.has(second));
  [...grants].forEach((grant, n) => {
    const end = known.get(grant);
    if (end === undefined) return;
    t.is(end.endsAt - end.renewedAt, (1000 + n) * 1000);
    const left = (end.endsAt - systemClock.now()) / 1000;
    t.true(left > 900 + n && left <= 1001 + n, `${left} s of ${1000 + n}`);
  });
  const known1 = known.get(first);
  await lab.members[0]?.kill();
  t.deepEqual((await ends.of(grants)).get(first), known1);
  t.is((await new LeaseEnds({ store, clock: systemClock }).of(grants)).size, 0);
});
