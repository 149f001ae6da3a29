import { setTimeout as delay } from "node:timers/promises";
import test from "ava";
import { connectPodnet } from "../../api/client.ts";
import { openStandInRig } from "../vm/standin-rig.ts";
import { exhaustedTooSoon, type Holding, heldTwice } from "./addresses.ts";
import { pooled, rowsAgree } from "./bookkeeping.ts";
import { type Heard, runClients } from "./clients.ts";
import { certainly, maybe, refusedFree } from "./operations.ts";
import type { Call } from "./history.ts";
import { unexplainedOf } from "./linearizability.ts";
import { disagreements, looksOf } from "./lists.ts";
import { mergeRequests } from "./requests.ts";

const full = process.env["PODNET_TEST_FULL"] === "1";
const seed = Number(process.env["PODNET_SEED"] ?? Math.floor(Math.random() * 2 ** 31));
const names = Array.from({ length: 24 }, (_, number) => `pod-${number}`);
/**
 * Without the network's own, its gateway's and the broadcast address: fewer than names, so that
 * they run out.
 */
const capacity = 13;
const config = `quarantine_s = 2
[network]
cidr = "192.168.123.0/28"
[limits]
requests_per_s = 100000
`;

/** Mulberry32. */
function random(from: number): () => number {
  let state = from;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** When each pod certainly held its address. */
function holdings(calls: readonly Call[], { addresses }: Heard): Holding[] {
  const ends = new Map<string, number>();
  for (const { outcome, invoked } of calls)
    if (outcome.kind === "deleted")
      ends.set(outcome.id, Math.min(invoked, ends.get(outcome.id) ?? Infinity));
  return calls.flatMap(({ outcome, returned }) => {
    if (outcome.kind !== "created") return [];
    const { id } = outcome;
    const until = ends.get(id) ?? Infinity;
    return [{ address: addresses.get(id) ?? "none", id, from: returned, until }];
  });
}

test("64 clients at random: every answer can be explained, no address is held twice", async (t) => {
  t.timeout(600_000);
  t.log(`PODNET_SEED=${seed}`);
  await using rig = await openStandInRig(config);
  const wrong: string[] = [];
  const ended = new AbortController();
  const watching = (async () => {
    using watcher = connectPodnet({ socket: rig.daemon.socket });
    let looks = 0;
    for (; !ended.signal.aborted; looks++) {
      wrong.push(...(await pooled(watcher)), ...rowsAgree(rig.daemon.stateDir));
      await delay(50);
    }
    return looks;
  })();
  const heard = await runClients({
    socket: rig.daemon.socket,
    clients: 64,
    names,
    durationMs: full ? 120_000 : 12_000,
    random: random(seed),
  });
  ended.abort();
  const looks = await watching;

  const requested = mergeRequests(heard.asked);
  const calls = [...heard.calls, ...requested.calls];
  const history = [...calls, ...looksOf(heard.listings, names)];
  wrong.push(
    ...heard.wrong,
    ...requested.wrong,
    ...disagreements(heard.listings),
    ...heldTwice([...holdings(calls, heard), ...certainly(heard.held, calls)]),
    ...refusedFree(heard.held, calls),
    ...exhaustedTooSoon(
      calls,
      capacity,
      maybe(heard.held, calls).filter(({ what }) => what.startsWith("eth")),
    ),
  );
  const kinds = Object.entries(Object.groupBy(calls, ({ outcome }) => outcome.kind));
  const counted = kinds.map(([kind, all]) => `${kind} ${all?.length}`).join(", ");
  const operations = Object.entries(Object.groupBy(heard.held, ({ kind }) => kind));
  t.log(operations.map(([kind, all]) => `${kind} ${all?.length}`).join(", "));
  t.log(`${counted}; ${heard.listings.length} lists, ${looks} looks at the books`);
  t.deepEqual(wrong, [], `PODNET_SEED=${seed}`);
  const why = unexplainedOf(history);
  t.is(why, undefined, `PODNET_SEED=${seed}\n${why}`);
  for (const kind of [
    "created",
    "deleted",
    "taken",
    "cut",
    "became",
    "busy",
    ...(full ? ["exhausted"] : []),
  ])
    t.true(
      calls.some(({ outcome }) => outcome.kind === kind),
      `some were ${kind}`,
    );

  // The checks see what is wrong in this very history.
  t.truthy(unexplainedOf(history.filter(({ outcome }) => outcome.kind !== "deleted")));
  const twin = calls.find(({ outcome }) => outcome.kind === "created") as Call;
  t.truthy(unexplainedOf([...history, { ...twin, outcome: { kind: "created", id: "twin" } }]));

  await Promise.all(names.map((idOrName) => rig.client.pods.delete({ idOrName })));
  const left = (await rig.changes()).filter((line) => !line.startsWith("+ row requests "));
  t.deepEqual(left, []);
});
