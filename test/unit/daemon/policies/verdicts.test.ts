import test from "ava";
import { parseIp } from "../../../../core/address.ts";
import {
  type Denied,
  type Lost,
  type Verdict,
  Verdicts,
} from "../../../../daemon/policies/verdicts.ts";

const denied = (holder: string, port: number): Denied => ({
  holder,
  direction: "egress",
  policy: "p",
  rule: "lan",
  reason: "It is for people",
  unit: "packets",
  count: 1,
  protocol: "tcp",
  address: parseIp("10.0.0.9"),
  port,
});

function open() {
  const state = { ms: 0 };
  const gone = new Set<string>();
  const verdicts = new Verdicts({
    clock: { now: () => state.ms, monotonic: () => state.ms },
    ownerOf: (holder) => (gone.has(holder) ? undefined : { container: holder }),
  });
  return { verdicts, state, gone };
}

const shown = (each: Verdict | Lost): string =>
  "lost" in each ? `lost ${each.lost}` : `${each.owner.container} ${each.port}`;

/** Reads as many as there are, without waiting. */
async function read(stream: AsyncGenerator<Verdict | Lost>, count: number): Promise<string[]> {
  const found: string[] = [];
  while (found.length < count) {
    const { value, done } = await stream.next();
    if (done === true) break;
    found.push(shown(value));
  }
  return found;
}

test("the last ones come first, then those that follow, until the reader goes", async (t) => {
  const { verdicts, state } = open();
  verdicts.add(denied("one", 1));
  state.ms = 5;
  verdicts.add(denied("two", 2));
  const over = new AbortController();
  const stream = verdicts.watch(undefined, over.signal);
  const own = verdicts.watch(["two"], over.signal);
  t.deepEqual(await read(stream, 2), ["one 1", "two 2"]);
  t.deepEqual(await read(own, 1), ["two 2"]);
  const next = read(stream, 2);
  const ownNext = read(own, 1);
  verdicts.add(denied("one", 3));
  verdicts.add(denied("two", 4));
  t.deepEqual(await next, ["one 3", "two 4"]);
  t.deepEqual(await ownNext, ["two 4"]);
  const last = stream.next();
  over.abort();
  t.true((await last).done);
});

test("a pod that is denied much is kept at its rate, and pushes out none of another's", (t) => {
  const { verdicts, state } = open();
  verdicts.add(denied("quiet", 1));
  for (let n = 0; n < 1000; n++) verdicts.add(denied("loud", n));
  for (let s = 0; s < 100; s++) {
    state.ms += 1000;
    for (let n = 0; n < 100; n++) verdicts.add(denied("loud", n));
  }
  const all = verdicts.last(undefined).map(shown);
  t.is(all.filter((text) => text.startsWith("loud")).length, 64, "the size of a ring");
  t.is(all[0], "quiet 1");
});

test("a slow reader misses verdicts and learns how many; another one gets all", async (t) => {
  const { verdicts, state } = open();
  const { signal } = new AbortController();
  const slow = verdicts.watch(undefined, signal);
  const begun = read(slow, 1);
  const all: Verdict[] = [];
  using _quick = verdicts.follow((verdict) => void all.push(verdict));
  verdicts.add(denied("one", 0));
  t.deepEqual(await begun, ["one 0"]);
  for (let n = 1; n <= 400; n++) {
    state.ms += 1000;
    verdicts.add(denied("one", n));
  }
  const found = await read(slow, 257);
  t.deepEqual([found[0], found[255], found[256]], ["one 1", "one 256", "lost 144"]);
  t.is(all.length, 401);
});

test("rings of those that are gone make room", async (t) => {
  const { verdicts, gone } = open();
  for (let n = 0; n < 64; n++) verdicts.add(denied(`pod${n}`, n));
  for (let n = 0; n < 60; n++) gone.add(`pod${n}`);
  verdicts.add(denied("new", 1));
  const { signal } = new AbortController();
  const found = await read(verdicts.watch(undefined, signal), 5);
  t.deepEqual(found, ["pod60 60", "pod61 61", "pod62 62", "pod63 63", "new 1"]);
});
