import { setImmediate as turn } from "node:timers/promises";
import test from "ava";
import type { Clock } from "../../../../core/clock.ts";
import { StepTurns } from "../../../../daemon/reconcile/step-turns.ts";

/** Ten steps that take so many milliseconds; answers which have begun after each turn. */
async function begunByTurn(stepMs: number): Promise<number[][]> {
  let now = 0;
  const clock = { monotonic: () => now } as Clock;
  const turns = new StepTurns();
  const begun: number[] = [];
  const step = async (n: number): Promise<void> => {
    await turns.enter(clock);
    begun.push(n);
    now += stepMs;
  };
  const all = Promise.all(Array.from({ length: 10 }, (_, n) => step(n)));
  const seen: number[][] = [];
  for (let n = 0; n < 12; n++) {
    await turn();
    seen.push([...begun]);
  }
  await all;
  return seen;
}

test("short steps all begin in one turn", async (t) => {
  const [first] = await begunByTurn(0);
  t.deepEqual(first, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
});

test("of long steps each turn begins one, in the order in which they came", async (t) => {
  const seen = await begunByTurn(5);
  t.deepEqual(seen.at(-1), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
  for (const [n, begun] of seen.entries()) {
    const before = seen[n - 1]?.length ?? 10;
    t.true(begun.length - before <= 1, `turn ${n}: ${seen.map((each) => each.length).join()}`);
  }
});

test("a step that comes while others wait does not go first", async (t) => {
  let now = 0;
  const clock = { monotonic: () => now } as Clock;
  const turns = new StepTurns();
  const begun: string[] = [];
  const step = async (name: string): Promise<void> => {
    await turns.enter(clock);
    begun.push(name);
    now += 10;
  };
  const early = [step("a"), step("b"), step("c")];
  await turn();
  const late = step("d");
  await Promise.all([...early, late]);
  t.deepEqual(begun, ["a", "b", "c", "d"]);
  // An idle turn later, the next one does not wait.
  await turn();
  await turn();
  const next = step("e");
  await Promise.resolve();
  await Promise.resolve();
  t.is(begun.at(-1), "e");
  await next;
});
