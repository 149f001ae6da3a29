import { setTimeout as delay } from "node:timers/promises";
import test from "ava";
import { connectEtcd } from "../../etcd/client.ts";
import type { Etcd, KeyValue, Operation, Watched } from "../../etcd/etcd.ts";
import { isPodnetError } from "../../core/errors.ts";
import { type EtcdLab, isUncertain, startEtcd } from "../lab/etcd.ts";

let lab: EtcdLab;
let etcd: Etcd & Disposable;

test.before(async () => {
  lab = await startEtcd();
  etcd = connectEtcd({ ...lab.client, timing: { callMs: 10_000, answerMs: 10_000 } });
});

test.after.always(async () => {
  etcd?.[Symbol.dispose]();
  await lab?.[Symbol.asyncDispose]();
});

const text = (kv: KeyValue | undefined): string => Buffer.from(kv?.value ?? []).toString();

/** What a watch reports until `enough`, without its signs of life. */
async function reported(
  watched: AsyncIterable<Watched>,
  enough: (all: readonly Watched[]) => boolean,
): Promise<Watched[]> {
  const all: Watched[] = [];
  for await (const one of watched) {
    if (one.kind !== "alive") all.push(one);
    if (enough(all)) break;
  }
  return all;
}

test.serial(
  "what is put is there, for etcdctl as well, with its revisions and version",
  async (t) => {
    const first = await etcd.put("/calls/kv/a", "one");
    const second = await etcd.put("/calls/kv/a", Uint8Array.of(0, 255, 10));
    t.true(second.revision > first.revision);
    const { kvs, cluster, more } = await etcd.range({ key: "/calls/kv/a" });
    t.is(cluster, second.cluster);
    t.false(more);
    const [kv] = kvs;
    t.deepEqual(kv, {
      key: "/calls/kv/a",
      value: Uint8Array.of(0, 255, 10),
      createRevision: first.revision,
      modRevision: second.revision,
      version: 2n,
      lease: 0n,
    });
    const seen = JSON.parse(await lab.etcdctl("get", "/calls/kv/a", "-w", "json")) as {
      readonly kvs: readonly { readonly value: string; readonly mod_revision: number }[];
    };
    t.is(seen.kvs[0]?.value, Buffer.of(0, 255, 10).toString("base64"));
    t.is(BigInt(seen.kvs[0]?.mod_revision ?? 0), second.revision);
    const then = await etcd.range({ key: "/calls/kv/a" }, { revision: first.revision });
    t.is(text(then.kvs[0]), "one");
  },
);

test.serial("a prefix has its keys and no others", async (t) => {
  for (const key of ["/calls/p/", "/calls/p/b", "/calls/p/ü", "/calls/p0", "/calls/p", "/calls/o"])
    await etcd.put(key, key);
  const { kvs } = await etcd.range({ prefix: "/calls/p/" });
  t.deepEqual(
    kvs.map(({ key }) => key),
    ["/calls/p/", "/calls/p/b", "/calls/p/ü"],
  );
  const some = await etcd.range({ prefix: "/calls/p/" }, { limit: 2, keysOnly: true });
  t.true(some.more);
  t.deepEqual(some.kvs.map(text), ["", ""]);
  const { deleted } = await etcd.delete({ prefix: "/calls/p/" });
  t.is(deleted, 3);
  t.is((await etcd.range({ prefix: "/calls/p" })).kvs.length, 2);
  t.is((await etcd.delete({ key: "/calls/p/b" })).deleted, 0);
  t.true((await etcd.range({ prefix: "" })).kvs.some(({ key }) => key === "/calls/p0"));
});

test.serial(
  "a transaction does one side or the other, and says what each operation gave",
  async (t) => {
    const key = "/calls/txn/a";
    const create = (value: string): ReturnType<Etcd["txn"]> =>
      etcd.txn({
        when: [{ key, target: "version", is: "=", value: 0n }],
        do: [{ kind: "put", key, value }],
        otherwise: [{ kind: "range", where: { key } }],
      });
    const won = await create("mine");
    t.true(won.succeeded);
    t.deepEqual(won.results, [{ kind: "put" }]);
    const lost = await create("yours");
    t.false(lost.succeeded);
    const [seen] = lost.results;
    t.is(text(seen?.kind === "range" ? seen.kvs[0] : undefined), "mine");
    const { createRevision, modRevision } = (await etcd.range({ key })).kvs[0] as KeyValue;
    const swapped = await etcd.txn({
      when: [
        { key, target: "createRevision", is: "=", value: createRevision },
        { key, target: "modRevision", is: "<", value: modRevision + 1n },
        { key, target: "value", is: "=", value: "mine" },
        { key, target: "value", is: "!=", value: "yours" },
        { key, target: "lease", is: "=", value: 0n },
        { key, target: "version", is: ">", value: 0n },
      ],
      do: [
        { kind: "delete", where: { prefix: "/calls/txn/" } },
        { kind: "put", key: "/calls/txn-b", value: "" },
      ],
    });
    t.true(swapped.succeeded);
    t.deepEqual(swapped.results, [{ kind: "delete", deleted: 1 }, { kind: "put" }]);
  },
);

test.serial(
  "a thousand keys in transactions of 128 come in one range, and in a watch revision by revision",
  async (t) => {
    const { revision } = await etcd.put("/calls/mark", "");
    const keys = Array.from(
      { length: 1000 },
      (_, i) => `/calls/many/${String(i).padStart(4, "0")}`,
    );
    let txns = 0;
    for (let at = 0; at < keys.length; at += 128, txns++) {
      const puts = keys
        .slice(at, at + 128)
        .map((key): Operation => ({ kind: "put", key, value: "x" }));
      t.true((await etcd.txn({ when: [], do: puts })).succeeded);
    }
    const { kvs } = await etcd.range({ prefix: "/calls/many/" });
    t.deepEqual(
      kvs.map(({ key }) => key),
      keys,
    );
    const count = (all: readonly Watched[]): number =>
      all.reduce((sum, one) => sum + (one.kind === "events" ? one.events.length : 0), 0);
    const watched = etcd.watch({ prefix: "/calls/many/" }, { from: revision + 1n });
    const seen = await reported(watched, (all) => count(all) >= 1000);
    const events = seen.flatMap((one) => (one.kind === "events" ? one.events : []));
    t.deepEqual(
      events.map((event) => (event.kind === "put" ? event.kv.key : "")),
      keys,
    );
    t.is(new Set(events.map((event) => event.kind === "put" && event.kv.modRevision)).size, txns);
    const tooMany = keys.slice(0, 129).map((key): Operation => ({ kind: "put", key, value: "" }));
    await t.throwsAsync(etcd.txn({ when: [], do: tooMany }), {
      code: "ETCD_FAILED",
      message: /too many operations/,
    });
  },
);

test.serial("a lease takes its keys along, and is reported while it lasts", async (t) => {
  const { lease, ttlSeconds } = await etcd.grant(3600);
  t.is(ttlSeconds, 3600);
  await etcd.put("/calls/lease/a", "", { lease });
  await etcd.txn({ when: [], do: [{ kind: "put", key: "/calls/lease/b", value: "", lease }] });
  const { kvs } = await etcd.range({ prefix: "/calls/lease/" });
  t.deepEqual(
    kvs.map((kv) => kv.lease),
    [lease, lease],
  );
  const left = await etcd.timeToLive(lease);
  t.is(left?.grantedSeconds, 3600);
  t.true((left?.ttlSeconds ?? 0) > 3000);
  await etcd.revoke(lease);
  t.is((await etcd.range({ prefix: "/calls/lease/" })).kvs.length, 0);
  t.is(await etcd.timeToLive(lease), undefined);
  const gone = await t.throwsAsync(etcd.put("/calls/lease/a", "", { lease }));
  t.true(isPodnetError(gone, "ETCD_LEASE_GONE"));
  t.false(isUncertain(gone));
  await t.throwsAsync(etcd.revoke(lease), { code: "ETCD_LEASE_GONE" });
  const chosen = await etcd.grant(60, { lease: (1n << 62n) + 1n });
  t.is(chosen.lease, (1n << 62n) + 1n);
  await t.throwsAsync(etcd.grant(60, { lease: chosen.lease }), {
    code: "ETCD_FAILED",
    message: /already exists/,
  });
});

test.serial(
  "a lease that is kept alive has its whole time again; one that has ended is reported",
  async (t) => {
    const { lease } = await etcd.grant(3600);
    const left = async (): Promise<number> => (await etcd.timeToLive(lease))?.ttlSeconds ?? 0;
    // etcd reports whole seconds that are left: 3599 at first.
    while ((await left()) > 3598) await delay(50);
    let again = 0;
    for (let tries = 20; again < 3599 && tries > 0; tries--) {
      t.is(await etcd.keepAlive(lease), 3600);
      again = await left();
    }
    t.is(again, 3599);
    await etcd.revoke(lease);
    t.is(await etcd.keepAlive(lease), undefined);
    await t.throwsAsync(etcd.keepAlive(lease, { signal: AbortSignal.abort() }), {
      code: "CANCELLED",
    });
  },
);

test.serial("a key whose lease runs out is deleted, and the watch says so", async (t) => {
  const { lease } = await etcd.grant(1);
  const { revision } = await etcd.put("/calls/expiry", "", { lease });
  const watched = etcd.watch({ key: "/calls/expiry" }, { from: revision });
  const seen = await reported(watched, (all) => all.length === 2);
  const [put, deleted] = seen.flatMap((one) => (one.kind === "events" ? one.events : []));
  t.is(put?.kind === "put" ? put.kv.lease : 0n, lease);
  t.like(deleted, { kind: "delete", key: "/calls/expiry" });
});

test.serial(
  "a watch reports what was before it and what comes, until it is cancelled",
  async (t) => {
    const { revision } = await etcd.put("/calls/watch/a", "1");
    await etcd.put("/calls/elsewhere", "");
    await etcd.delete({ key: "/calls/watch/a" });
    const over = new AbortController();
    const watched = etcd.watch(
      { prefix: "/calls/watch/" },
      { from: revision, signal: over.signal },
    );
    const seen: string[] = [];
    const error = await t.throwsAsync(async () => {
      for await (const one of watched) {
        if (one.kind === "alive" && seen.length === 0) seen.push("alive");
        if (one.kind !== "events") continue;
        seen.push(...one.events.map((event) => event.kind));
        if (seen.length === 3) await etcd.put("/calls/watch/b", "2");
        if (seen.length === 4) over.abort();
      }
    });
    t.deepEqual(seen, ["alive", "put", "delete", "put"]);
    t.true(isPodnetError(error, "CANCELLED"));
  },
);

test.serial(
  "what was compacted is reported as such, by a watch with the revision that is left",
  async (t) => {
    const { revision } = await etcd.put("/calls/compact", "1");
    const later = await etcd.put("/calls/compact", "2");
    await etcd.compact(later.revision);
    await t.throwsAsync(etcd.range({ key: "/calls/compact" }, { revision }), {
      code: "ETCD_COMPACTED",
    });
    const error = await t.throwsAsync(
      reported(etcd.watch({ key: "/calls/compact" }, { from: revision }), () => false),
    );
    t.true(isPodnetError(error, "ETCD_COMPACTED"));
    t.is(isPodnetError(error) && error.details["revision"], String(later.revision));
    const seen = await reported(
      etcd.watch({ key: "/calls/compact" }, { from: later.revision }),
      (all) => all.length === 1,
    );
    t.is(seen[0]?.kind, "events");
  },
);

test.serial("a call that its caller gives up ends with the caller's reason", async (t) => {
  const signal = AbortSignal.abort();
  await t.throwsAsync(etcd.put("/calls/never", "", { signal }), { code: "CANCELLED" });
  const late = AbortSignal.timeout(1);
  await t.throwsAsync(
    reported(etcd.watch({ key: "/calls/never" }, { from: 1n << 40n, signal: late }), () => false),
    { code: "DEADLINE_EXCEEDED" },
  );
  t.is((await etcd.range({ key: "/calls/never" })).kvs.length, 0);
});

test.serial("a connection that only its kernel took is none: nothing was sent", async (t) => {
  const [member] = lab.members;
  await member?.freeze();
  t.teardown(() => member?.thaw());
  using late = connectEtcd({ ...lab.client, timing: { answerMs: 200, callMs: 1000 } });
  const error = await t.throwsAsync(late.put("/calls/unsent", ""));
  t.true(isPodnetError(error, "ETCD_UNREACHABLE"));
  t.regex(String(error), /no answer to a new connection/);
  t.false(isUncertain(error));
  member?.thaw();
  await t.notThrowsAsync(etcd.put("/calls/sent", ""));
  t.is((await etcd.range({ key: "/calls/unsent" })).kvs.length, 0);
});

test.serial("what is no endpoint is refused", (t) => {
  for (const endpoint of [
    "",
    "10.0.0.1:2379",
    "ftp://a",
    "http://u@a:1",
    "http://a/b",
    "http://a/?c",
  ])
    t.throws(() => connectEtcd({ endpoints: [endpoint] }), { code: "CONFIG_INVALID" }, endpoint);
  t.throws(() => connectEtcd({ endpoints: [] }), { code: "CONFIG_INVALID" });
  t.notThrows(() => connectEtcd({ endpoints: ["https://[fd00::1]:2379", "http://etcd.example"] }));
});
