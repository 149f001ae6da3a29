import { setImmediate as turn } from "node:timers/promises";
import test from "ava";
import type { Clock } from "../../../core/clock.ts";
import { type LoopShare, LoopTurns, LoopUser } from "../../../linux/loop-turns.ts";

/** Turns whose time goes on only where a test says so. */
function scene() {
  let now = 0;
  const clock: Clock = { now: () => now, monotonic: () => now };
  const turns = new LoopTurns(clock);
  const order: string[] = [];
  /** A piece of work that takes so many milliseconds, at once if it may. */
  const work = async (name: string, user: LoopUser, ms: number): Promise<void> => {
    if (!turns.begin()) await turns.enter(user);
    order.push(name);
    now += ms;
  };
  /** A piece of work that waits in any case. */
  const wait = async (name: string, user: LoopUser, ms: number): Promise<void> => {
    await turns.enter(user);
    order.push(name);
    now += ms;
  };
  return { turns, order, work, wait };
}

const user = (share: LoopShare): LoopUser => new LoopUser(share, "api");

/** Ten pieces that take so many milliseconds; answers which have begun after each turn. */
async function begunByTurn(ms: number): Promise<string[][]> {
  const { order, work } = scene();
  const steps = user("pods");
  const all = Promise.all(Array.from({ length: 10 }, (_, n) => work(`${n}`, steps, ms)));
  const seen: string[][] = [];
  for (let n = 0; n < 12; n++) {
    await turn();
    seen.push([...order]);
  }
  await all;
  return seen;
}

const ten = Array.from({ length: 10 }, (_, n) => `${n}`);

test("short pieces of work all begin at once", async (t) => {
  t.deepEqual((await begunByTurn(0))[0], ten);
});

test("of long pieces each turn begins one, in the order in which they came", async (t) => {
  const seen = await begunByTurn(5);
  t.deepEqual(seen.at(-1), ten);
  const counts = seen.map(({ length }) => length);
  // The first turn has one that begins at once, and one that has waited.
  t.true((counts[0] ?? 9) <= 2, counts.join());
  for (const [n, count] of counts.entries())
    t.true(n === 0 || count - (counts[n - 1] ?? 0) <= 1, counts.join());
});

test("pieces that have waited go on until they have used their time of a turn", async (t) => {
  const { turns, order, wait } = scene();
  const steps = user("pods");
  const all = Promise.all(ten.map((name) => wait(name, steps, 1)));
  const counts: number[] = [];
  for (let n = 0; n < 6; n++) {
    await turn();
    counts.push(order.length);
  }
  await all;
  t.deepEqual(counts, [2, 4, 6, 8, 10, 10]);
  t.true(turns.begin(), "nothing waits any more");
});

test("no more than some pieces go on in one turn, however short they are", async (t) => {
  const { order, wait } = scene();
  const steps = user("pods");
  const all = Promise.all(Array.from({ length: 40 }, (_, n) => wait(`${n}`, steps, 0)));
  await turn();
  t.is(order.length, 16);
  await all;
  t.is(order.length, 40);
});

test("a piece that comes while others wait does not go first", async (t) => {
  const { order, work } = scene();
  const steps = user("pods");
  const early = ["a", "b", "c", "d"].map((name) => work(name, steps, 10));
  await turn();
  await Promise.all([...early, work("late", steps, 10)]);
  t.deepEqual(order, ["a", "b", "c", "d", "late"]);
  // When nothing waits, the next piece does not either.
  await turn();
  await turn();
  const next = work("next", steps, 0);
  t.is(order.at(-1), "next");
  await next;
});

test("whoever has used least has the next turn, and nothing is saved up", async (t) => {
  const { turns, order, wait } = scene();
  const [much, little, late] = [user("callers"), user("callers"), user("callers")];
  // Alone, for a long time: that is not held against it.
  for (let i = 0; i < 100; i++) await wait("alone", much, 10);
  order.length = 0;
  const all = Array.from({ length: 6 }, () => wait("much", much, 10));
  all.push(...Array.from({ length: 6 }, () => wait("little", little, 5)));
  all.push(wait("late", late, 5));
  await Promise.all(all);
  // Two of five for one of ten, and whoever has used nothing comes first.
  t.true(order.indexOf("late") < 4, order.join());
  t.is(order.slice(0, 10).filter((name) => name === "little").length, 6, order.join());
  t.is(order.filter((name) => name === "much").length, 6);
  // A caller that has gone has no turn, and holds up none.
  const gone = turns.enter(much, { over: Promise.resolve(), gone: () => new Error("gone") });
  await Promise.all([t.throwsAsync(gone, { message: "gone" }), wait("after", little, 1)]);
  t.is(order.at(-1), "after");
});

test("a hundred guests that send have the time of one caller, and not a hundred times as much", async (t) => {
  const { order, wait } = scene();
  const guests = Array.from({ length: 100 }, () => user("guests"));
  const caller = user("callers");
  const sent = guests.map((guest) => wait("guest", guest, 1));
  const asked = Array.from({ length: 10 }, () => wait("call", caller, 1));
  await Promise.all([...sent, ...asked]);
  t.is(order.slice(0, 20).filter((name) => name === "call").length, 10, order.join());
});
