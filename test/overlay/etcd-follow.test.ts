import test from "ava";
import { connectEtcd, type EtcdTiming } from "../../etcd/client.ts";
import type { Etcd, Watched } from "../../etcd/etcd.ts";
import { type Followable, type Followed, follow } from "../../etcd/follow.ts";
import { isPodnetError } from "../../core/errors.ts";
import { type EtcdLab, startEtcd } from "../lab/etcd.ts";
import { Random, runSeed } from "../fuzz/engine/random.ts";

let lab: EtcdLab;
/** For what writes: a busy machine is no fault of etcd's. */
const patient: Partial<EtcdTiming> = { callMs: 20_000, answerMs: 20_000 };

test.before(async () => {
  lab = await startEtcd({ words: ["--experimental-watch-progress-notify-interval=200ms"] });
});

test.after.always(async () => {
  await lab?.[Symbol.asyncDispose]();
});

const restart = async (wiped = false): Promise<void> => {
  const [member] = lab.members;
  await member?.kill();
  if (wiped) member?.wipe();
  member?.start();
  await lab.ready();
};

/** A follower read one by one; ends with the test. */
function following(
  prefix: string,
  timing: Partial<EtcdTiming> = {},
  onWatched: (watched: Watched) => void = () => {},
): {
  readonly next: () => Promise<Followed>;
  readonly end: () => Promise<IteratorResult<Followed, void>>;
  readonly [Symbol.dispose]: () => void;
} {
  const over = new AbortController();
  const etcd = connectEtcd({ ...lab.client, timing });
  const seen: Followable = {
    range: (...words) => etcd.range(...words),
    watch: async function* (...words) {
      for await (const watched of etcd.watch(...words)) {
        onWatched(watched);
        yield watched;
      }
    },
  };
  const followed = follow(seen, prefix, { signal: over.signal });
  return {
    next: async () => {
      const { done, value } = await followed.next();
      if (done === true) throw new Error("It has ended");
      return value;
    },
    end: () => {
      const ended = followed.next();
      over.abort();
      return ended;
    },
    [Symbol.dispose]: () => {
      over.abort();
      etcd[Symbol.dispose]();
    },
  };
}

/** What comes next but for that etcd is away. */
async function nextEvents(from: { readonly next: () => Promise<Followed> }): Promise<Followed> {
  for (;;) {
    const next = await from.next();
    if (next.kind !== "stale") return next;
  }
}

const keys = (followed: Followed): string[] => {
  if (followed.kind === "snapshot") return followed.kvs.map(({ key }) => key);
  if (followed.kind !== "changes") return [followed.kind];
  return followed.events.map((one) => (one.kind === "put" ? one.kv.key : `-${one.key}`));
};

test.serial("first comes what is there, then what happens, and it ends when aborted", async (t) => {
  using writer = connectEtcd({ ...lab.client, timing: patient });
  await writer.put("/follow/first/a", "");
  using follower = following("/follow/first/");
  const snapshot = await follower.next();
  t.deepEqual([snapshot.kind, keys(snapshot)], ["snapshot", ["/follow/first/a"]]);
  await writer.put("/follow/elsewhere", "");
  const { revision } = await writer.txn({
    when: [],
    do: [
      { kind: "put", key: "/follow/first/b", value: "" },
      { kind: "delete", where: { key: "/follow/first/a" } },
    ],
  });
  const changes = await follower.next();
  t.deepEqual(keys(changes), ["/follow/first/b", "-/follow/first/a"]);
  t.like(changes, { kind: "changes", revision });
  t.deepEqual(await follower.end(), { done: true, value: undefined });
});

test.serial(
  "while etcd is away it is reported since when, and what happened meanwhile comes after",
  async (t) => {
    using writer = connectEtcd({ ...lab.client, timing: patient });
    using follower = following("/follow/away/");
    await follower.next();
    const before = Date.now();
    await lab.members[0]?.kill();
    const stale = await follower.next();
    t.is(stale.kind, "stale");
    if (stale.kind !== "stale") return;
    t.true(isPodnetError(stale.reason, "ETCD_UNREACHABLE"));
    // It was heard about once a second.
    t.true(stale.since <= Date.now() && stale.since > before - 60_000);
    lab.members[0]?.start();
    await lab.ready();
    t.is((await nextEvents(follower)).kind, "current");
    await writer.put("/follow/away/a", "");
    t.deepEqual(keys(await nextEvents(follower)), ["/follow/away/a"]);
  },
);

test.serial(
  "what a quiet prefix missed by a compaction is nothing, and it says so without a snapshot",
  async (t) => {
    using writer = connectEtcd({ ...lab.client, timing: patient });
    const reached = Promise.withResolvers<void>();
    let put = 1n << 62n;
    using follower = following("/follow/quiet/", {}, (watched) => {
      if (watched.kind === "reached" && watched.revision >= put) reached.resolve();
    });
    const snapshot = await follower.next();
    // Reading is what makes it go on; nothing is reported of what happens elsewhere.
    const reported = follower.next();
    put = (await writer.put("/follow/loud", "")).revision;
    t.true(snapshot.kind === "snapshot" && put > snapshot.revision);
    // etcd says by itself how far it has come, here five times a second.
    await reached.promise;
    await lab.compactAll();
    await restart();
    t.is((await reported).kind, "stale");
    t.is((await nextEvents(follower)).kind, "current");
  },
);

test.serial("what was compacted while it was away comes as a snapshot", async (t) => {
  using writer = connectEtcd({ ...lab.client, timing: patient });
  await writer.put("/follow/compacted/a", "");
  using follower = following("/follow/compacted/");
  await follower.next();
  await lab.members[0]?.kill();
  t.is((await follower.next()).kind, "stale");
  lab.members[0]?.start();
  await lab.ready();
  // The follower is not read meanwhile: it does nothing.
  await writer.put("/follow/compacted/b", "");
  await writer.delete({ key: "/follow/compacted/a" });
  await lab.compactAll();
  const snapshot = await nextEvents(follower);
  t.deepEqual([snapshot.kind, keys(snapshot)], ["snapshot", ["/follow/compacted/b"]]);
  await writer.put("/follow/compacted/c", "");
  t.deepEqual(keys(await nextEvents(follower)), ["/follow/compacted/c"]);
});

test.serial(
  "an etcd that was made anew, and is behind what was known, is listed at once",
  async (t) => {
    using writer = connectEtcd({ ...lab.client, timing: patient });
    for (const key of ["a", "b", "c"]) await writer.put(`/follow/anew/${key}`, "");
    using follower = following("/follow/anew/");
    const before = await follower.next();
    await restart(true);
    await writer.put("/follow/anew/new", "");
    const after = await nextEvents(follower);
    t.true(before.kind === "snapshot" && after.kind === "snapshot");
    if (before.kind !== "snapshot" || after.kind !== "snapshot") return;
    t.true(after.revision < before.revision);
    t.deepEqual(keys(after), ["/follow/anew/new"]);
  },
);

/** What one revision did, as a follower should report it. */
type Operation = readonly string[];

/**
 * The only one who writes, so that each write is the next revision, and who remembers what it did.
 */
class Writer {
  readonly operations = new Map<bigint, Operation>();
  readonly #etcd: Etcd;
  readonly #now = new Map<string, string>();
  readonly states = new Map<bigint, ReadonlyMap<string, string>>();
  revision: bigint;

  constructor(etcd: Etcd, revision: bigint) {
    this.#etcd = etcd;
    this.revision = revision;
    this.states.set(revision, new Map());
  }

  async put(keysToPut: readonly string[], value: string): Promise<void> {
    const puts = keysToPut.map((key) => ({ kind: "put", key, value }) as const);
    const { revision } = await this.#etcd.txn({ when: [], do: puts });
    for (const key of keysToPut) this.#now.set(key, value);
    this.#done(
      revision,
      keysToPut.map((key) => `${key}=${value}`),
    );
  }

  async delete(key: string): Promise<void> {
    const { revision, deleted } = await this.#etcd.delete({ key });
    if (deleted === 0) return;
    this.#now.delete(key);
    this.#done(revision, [`-${key}`]);
  }

  #done(revision: bigint, operation: Operation): void {
    this.revision = revision;
    this.operations.set(revision, operation);
    this.states.set(revision, new Map(this.#now));
  }
}

const text = (value: Uint8Array): string => Buffer.from(value).toString();

/**
 * Compares a follower's reports with what was done: throws on the first thing too much, too little
 * or wrong.
 */
function checked(
  writer: Writer,
  known: bigint | undefined,
  followed: Followed,
): bigint | undefined {
  if (followed.kind === "snapshot") {
    const kvs = followed.kvs.map(({ key, value }) => `${key}=${text(value)}`);
    const should = Array.from(writer.states.get(followed.revision) ?? [], ([k, v]) => `${k}=${v}`);
    if (kvs.join() !== should.sort().join())
      throw new Error(`Snapshot of ${followed.revision}: ${kvs.join()}, not ${should.join()}`);
    return followed.revision;
  }
  if (followed.kind !== "changes" || known === undefined) return known;
  const seen = followed.events.map((one) =>
    one.kind === "put" ? `${one.kv.key}=${text(one.kv.value)}` : `-${one.key}`,
  );
  const should: string[] = [];
  for (let at = known + 1n; at <= followed.revision; at++)
    should.push(...(writer.operations.get(at) ?? []));
  if (seen.join() !== should.join())
    throw new Error(`Changes after ${known}: ${seen.join()}, not ${should.join()}`);
  return followed.revision;
}

test.serial(
  "through puts, deletes, compactions, kills and standstills nothing is lost and nothing comes twice",
  async (t) => {
    const seed = runSeed();
    t.log(`PODNET_SEED=${seed}`);
    const random = new Random(seed);
    using etcd = connectEtcd({ ...lab.client, timing: patient });
    // (Revisions are known from here on: no other client writes.)
    const { revision } = await etcd.delete({ prefix: "/follow/model/" });
    const writer = new Writer(etcd, revision);
    const [member] = lab.members;
    using follower = following("/follow/model/", { askMs: 100, silenceMs: 500, answerMs: 500 });
    const counts = { snapshot: 0, changes: 0, stale: 0, current: 0 };
    const reported: { upTo: bigint | undefined } = { upTo: undefined };
    const read = async (): Promise<void> => {
      const followed = await follower.next();
      counts[followed.kind]++;
      reported.upTo = checked(writer, reported.upTo, followed);
    };
    /** Until it has reported everything. */
    const caughtUp = async (): Promise<void> => {
      while (reported.upTo === undefined || reported.upTo < writer.revision) await read();
    };
    const write = async (): Promise<void> => {
      const key = (): string => `/follow/model/${random.below(6)}`;
      if (random.once(3)) return await writer.delete(key());
      const several = new Set(random.list(1 + random.below(4), key));
      await writer.put([...several], String(random.below(1000)));
    };
    const writeSome = async (): Promise<void> => {
      for (let writes = random.below(8); writes > 0; writes--) {
        await write();
        if (random.once(2)) await caughtUp();
      }
    };
    await read();
    for (let round = 0; round < 10; round++) {
      const trouble = random.pick(["none", "kill", "freeze", "compact", "kill and compact"]);
      await writeSome();
      if (trouble === "freeze") {
        await member?.freeze();
        for (const before = counts.stale; counts.stale === before; ) await read();
        member?.thaw();
      }
      if (trouble.startsWith("kill")) await restart();
      await writeSome();
      if (trouble.endsWith("compact")) await lab.compactAll();
      await writeSome();
      if (!random.once(4)) await caughtUp();
    }
    await caughtUp();
    t.log(counts);
    t.is(reported.upTo, writer.revision);
    const { kvs } = await etcd.range({ prefix: "/follow/model/" });
    const should = Object.fromEntries(writer.states.get(writer.revision) ?? []);
    t.deepEqual(Object.fromEntries(kvs.map(({ key, value }) => [key, text(value)])), should);
  },
);
