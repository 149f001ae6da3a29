import { setImmediate as turn } from "node:timers/promises";
import test from "ava";
import { PodnetError } from "../../../core/errors.ts";
import { Slots } from "../../../core/slots.ts";

const never = new AbortController().signal;

/** Work that holds its slot until the test ends it. */
function scene(most: number) {
  const slots = new Slots(most);
  const begun: string[] = [];
  const held = new Map<string, Disposable>();
  const begin = (name: string, owner?: unknown, signal = never): Promise<void> =>
    slots.take(signal, "The work", owner).then((slot) => {
      begun.push(name);
      held.set(name, slot);
    });
  const end = async (name: string): Promise<void> => {
    held.get(name)?.[Symbol.dispose]();
    await turn();
  };
  return { slots, begun, begin, end };
}

test("so much goes on at a time, and the rest in the order in which it came", async (t) => {
  const { slots, begun, begin, end } = scene(2);
  for (const name of ["a", "b", "c", "d"]) void begin(name);
  await turn();
  t.deepEqual(begun, ["a", "b"]);
  t.is(slots.waiting, 2);
  await end("b");
  t.deepEqual(begun, ["a", "b", "c"]);
  // A slot is given back once.
  await end("b");
  t.deepEqual(begun, ["a", "b", "c"]);
  await end("a");
  t.deepEqual(begun, ["a", "b", "c", "d"]);
  t.is(slots.waiting, 0);
});

test("who asks for much waits for itself, and another begins with the next slot", async (t) => {
  const { begun, begin, end } = scene(3);
  for (let n = 0; n < 9; n++) void begin(`much ${n}`, "much");
  void begin("little", "little");
  await turn();
  await end("much 0");
  t.deepEqual(begun, ["much 0", "much 1", "much 2", "little"]);
  // The other has ended: now it is one like any.
  await end("little");
  t.is(begun.at(-1), "much 3");
});

test("what is given up while it waits takes no slot", async (t) => {
  const { slots, begun, begin, end } = scene(1);
  await begin("first");
  const stop = new AbortController();
  const given = begin("given up", undefined, stop.signal);
  void begin("next");
  stop.abort(new PodnetError("CANCELLED", "The caller has gone"));
  await t.throwsAsync(given, { message: "The caller has gone" });
  t.is(slots.waiting, 1);
  await end("first");
  t.deepEqual(begun, ["first", "next"]);
});

test("a slot that comes as its work is given up goes to the next", async (t) => {
  const { begun, begin, end } = scene(1);
  await begin("first");
  const stop = new AbortController();
  const given = begin("given up", undefined, stop.signal);
  void begin("next");
  const ended = end("first");
  stop.abort(new PodnetError("CANCELLED", "The caller has gone"));
  await t.throwsAsync(given, { message: "The caller has gone" });
  await ended;
  t.deepEqual(begun, ["first", "next"]);
});
