import test from "ava";
import { type ErrorCode, isPodnetError, PodnetError } from "../../../core/errors.ts";
import type { KeyValue, RangeAnswer, RangeOptions, Watched } from "../../../etcd/etcd.ts";
import { type Followable, type Followed, follow } from "../../../etcd/follow.ts";

/** An etcd that gives the listed answers, one for each call. */
class Scripted implements Followable {
  readonly asked: string[] = [];
  readonly #ranges: (RangeAnswer | PodnetError)[];
  readonly #watches: (Watched | PodnetError | number)[][];
  /** Called with each number of a watch: so many milliseconds pass. */
  pass: (ms: number) => void = () => {};

  constructor(
    ranges: (RangeAnswer | PodnetError)[],
    watches: (Watched | PodnetError | number)[][],
  ) {
    this.#ranges = ranges;
    this.#watches = watches;
  }

  async range(_where: unknown, { limit, revision }: RangeOptions = {}): Promise<RangeAnswer> {
    this.asked.push(limit === undefined ? "list" : `look ${revision ?? "now"}`);
    const answer = this.#ranges.shift();
    if (answer === undefined || answer instanceof PodnetError) throw answer ?? error("CANCELLED");
    return answer;
  }

  async *watch(_where: unknown, { from }: { readonly from: bigint }): AsyncGenerator<Watched> {
    this.asked.push(`watch ${from}`);
    for (const one of this.#watches.shift() ?? [error("CANCELLED")]) {
      if (one instanceof PodnetError) throw one;
      if (typeof one === "number") this.pass(one);
      else yield one;
    }
  }
}

const error = (code: ErrorCode): PodnetError => new PodnetError(code, code);
const kv: KeyValue = {
  key: "/p/a",
  value: new Uint8Array(),
  createRevision: 1n,
  modRevision: 1n,
  version: 1n,
  lease: 0n,
};
const at = (revision: bigint, cluster = 1n): RangeAnswer => ({
  revision,
  cluster,
  kvs: [kv],
  more: false,
});
const alive = (revision: bigint, cluster = 1n): Watched => ({ kind: "alive", revision, cluster });
const put = (revision: bigint): Watched => ({
  kind: "events",
  revision,
  events: [{ kind: "put", kv }],
});

interface Run {
  readonly reported: string[];
  readonly pauses: number[];
  readonly thrown: unknown;
}

/** Follows until the script is at its end. */
async function run(etcd: Scripted, { clock = 0, random = 1 } = {}): Promise<Run> {
  const reported: string[] = [];
  const pauses: number[] = [];
  let now = clock;
  etcd.pass = (ms) => {
    now += ms;
  };
  const followed = follow(etcd, "/p/", {
    signal: new AbortController().signal,
    clock: { now: () => now, monotonic: () => now },
    random: () => random,
    pause: async (ms) => {
      pauses.push(ms);
      now += ms;
    },
  });
  try {
    for await (const one of followed) reported.push(inShort(one));
    return { reported, pauses, thrown: undefined };
  } catch (thrown) {
    return { reported, pauses, thrown };
  }
}

function inShort(one: Followed): string {
  if (one.kind === "stale") return `stale since ${one.since}: ${one.reason.code}`;
  return `${one.kind} ${one.revision}`;
}

test("it goes on after the last revision it has reported, having looked whether etcd has the rest", async (t) => {
  const etcd = new Scripted(
    [at(5n), at(9n), at(9n)],
    [
      [alive(5n), put(7n), error("ETCD_UNREACHABLE")],
      [alive(9n), put(9n)],
    ],
  );
  const { reported } = await run(etcd);
  t.deepEqual(reported.slice(0, 5), [
    "snapshot 5",
    "changes 7",
    "stale since 0: ETCD_UNREACHABLE",
    "current 7",
    "changes 9",
  ]);
  t.deepEqual(etcd.asked.slice(0, 5), ["list", "watch 6", "look now", "look 7", "watch 8"]);
});

test("up to where nothing happened it need not look again", async (t) => {
  const etcd = new Scripted(
    [at(5n), at(9n), at(9n)],
    [
      [{ kind: "reached", revision: 8n }, { kind: "reached", revision: 3n }, error("ETCD_FAILED")],
      [alive(9n)],
    ],
  );
  const { reported } = await run(etcd);
  t.deepEqual(reported.slice(0, 3), ["snapshot 5", "stale since 0: ETCD_FAILED", "current 8"]);
  t.deepEqual(etcd.asked.slice(0, 5), ["list", "watch 6", "look now", "look 8", "watch 9"]);
});

test("what was compacted is listed, found by looking or by the watch", async (t) => {
  const looked = new Scripted(
    [at(5n), at(9n), error("ETCD_COMPACTED"), at(9n)],
    [[error("ETCD_UNREACHABLE")], [alive(9n)]],
  );
  t.deepEqual((await run(looked)).reported.slice(0, 3), [
    "snapshot 5",
    "stale since 0: ETCD_UNREACHABLE",
    "snapshot 9",
  ]);
  const watched = new Scripted(
    [at(5n), at(9n)],
    [[alive(5n), error("ETCD_COMPACTED")], [alive(9n)]],
  );
  t.deepEqual((await run(watched)).reported.slice(0, 2), ["snapshot 5", "snapshot 9"]);
});

test("another etcd, and one that has gone back, are listed; a member that is behind is not", async (t) => {
  const cases: readonly (readonly [RangeAnswer[], Watched, string])[] = [
    // By what is looked at after a failure.
    [[at(9n, 2n), at(9n, 2n)], alive(9n, 2n), "snapshot 9"],
    [[at(4n), at(4n)], alive(4n), "snapshot 4"],
    [[at(5n), at(5n)], alive(5n), "current 5"],
    // By what the watch says.
    [[at(5n), at(5n), at(9n, 2n)], alive(9n, 2n), "snapshot 9"],
    [[at(5n), at(5n), at(4n), at(4n)], alive(4n), "snapshot 4"],
    [[at(5n), at(5n), at(5n), at(5n)], alive(4n), "current 5"],
  ];
  for (const [ranges, says, next] of cases) {
    const etcd = new Scripted([at(5n), ...ranges], [[error("ETCD_UNREACHABLE")], [says], [says]]);
    const { reported } = await run(etcd);
    t.is(reported[2], next, etcd.asked.join());
  }
});

test("a failure is reported once with its reason, since when, and tried again after longer pauses", async (t) => {
  const away = error("ETCD_UNREACHABLE");
  const etcd = new Scripted(
    [away, away, away, away, away, error("ETCD_DENIED"), away, at(5n), away],
    [[away]],
  );
  const { reported, pauses } = await run(etcd, { clock: 1000 });
  t.deepEqual(reported, [
    "stale since 1000: ETCD_UNREACHABLE",
    "stale since 1000: ETCD_DENIED",
    "stale since 1000: ETCD_UNREACHABLE",
    "snapshot 5",
    "stale since 7700: ETCD_UNREACHABLE",
  ]);
  t.deepEqual(pauses, [100, 200, 400, 800, 1000, 3200, 1000, 10_000, 1000]);
  const drawn = new Scripted([away, away], []);
  t.deepEqual((await run(drawn, { random: 0.5 })).pauses, [75, 150]);
});

test("attempts that end soon are failures, whatever they heard; one that lasted is none", async (t) => {
  const failing = error("ETCD_FAILED");
  const quick = new Scripted(
    [at(5n), at(5n), at(5n), at(5n), at(5n)],
    [
      [alive(5n), failing],
      [alive(5n), failing],
      [alive(5n), failing],
    ],
  );
  t.deepEqual((await run(quick)).pauses.slice(0, 3), [100, 200, 400]);
  // Another cluster each time: no error, and no end of it.
  const other = new Scripted(
    [at(5n, 1n), at(5n, 2n), at(5n, 3n), at(5n, 4n)],
    [[alive(5n, 9n)], [alive(5n, 9n)], [alive(5n, 9n)]],
  );
  t.deepEqual((await run(other)).pauses.slice(0, 3), [100, 200, 400]);
  const steady = new Scripted(
    [at(5n), at(5n), at(5n), at(5n), at(5n)],
    [
      [alive(5n), failing],
      [alive(5n), 6000, failing],
      [alive(5n), failing],
    ],
  );
  t.deepEqual((await run(steady)).pauses.slice(0, 3), [100, 100, 200]);
});

test("what is none of etcd's errors ends it", async (t) => {
  const etcd = new Scripted([error("INTERNAL")], []);
  const { reported, thrown } = await run(etcd);
  t.deepEqual(reported, []);
  t.true(isPodnetError(thrown, "INTERNAL"));
});

test("its signal ends it without an error, in a pause as well", async (t) => {
  const over = new AbortController();
  const etcd = new Scripted([error("ETCD_UNREACHABLE"), at(1n)], [[alive(1n)]]);
  const reported: string[] = [];
  const followed = follow(etcd, "/p/", { signal: over.signal, random: () => 1e6 });
  for await (const one of followed) {
    reported.push(one.kind);
    setImmediate(() => over.abort());
  }
  t.deepEqual(reported, ["stale"]);
});
