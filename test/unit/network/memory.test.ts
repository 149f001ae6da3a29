import test from "ava";
import { isPodnetError } from "../../../core/errors.ts";
import { Memory, type Remembered } from "../../../network/kernel/memory.ts";
import { SerialQueue } from "../../../network/kernel/queue.ts";

test("What is remembered is stored before it counts, once, and is void on another host", (t) => {
  const stored: Remembered[] = [];
  const memory = new Memory("here", undefined, (value) => stored.push(value));
  memory.rememberForward(4, "0", []);
  memory.rememberForward(4, "1", [{ key: "net/ipv4/conf/all/accept_redirects", value: "0" }]);
  memory.chains(4).remember("nft", "filter", "HYPER");
  memory.chains(4).remember("nft", "filter", "HYPER");
  t.is(stored.length, 2);
  t.is(memory.value.ipForward, "0", "the first value is the host's own");
  t.is(memory.chains(4).variant(), "nft");
  const again = new Memory("here", JSON.parse(JSON.stringify(memory.value)) as Remembered);
  t.true(again.chains(4).made("nft", "filter", "HYPER"));
  t.false(again.chains(4).made("legacy", "filter", "HYPER"));
  t.deepEqual(again.chains(4).names("nft"), ["HYPER"]);
  again.chains(4).remember("legacy", "nat", "HYPER");
  t.is(again.chains(4).variant(), undefined);
  t.deepEqual(new Memory("elsewhere", memory.value).value, {
    host: "elsewhere",
    chains: [],
    raised: [],
  });
  t.false(memory.hasPinned(7));
  again.rememberPinned(7);
  again.rememberPinned(7);
  t.deepEqual(again.value.pinned, [7]);
  t.true(again.hasPinned(7));
  t.is(again.rules6, undefined);
  again.judgeRules6("suspected");
  t.is(again.rules6, "suspected");
  memory.forgetForward(4);
  memory.chains(4).forget("nft", "filter", "HYPER");
  t.deepEqual(memory.value, { host: "here", chains: [], raised: [] });
});

test("A store that fails leaves the memory as it was", (t) => {
  const memory = new Memory("here", undefined, () => {
    throw new Error("disk full");
  });
  t.throws(() => memory.rememberForward(4, "0", []), { message: "disk full" });
  t.is(memory.value.ipForward, undefined);
});

test("Tasks run one at a time in their order, past failures; an aborted one is not started", async (t) => {
  const queue = new SerialQueue();
  const { signal } = new AbortController();
  const gone = new AbortController();
  const log: string[] = [];
  const task = (name: string) => async (): Promise<string> => {
    log.push(`+${name}`);
    await new Promise((resolve) => setImmediate(resolve));
    log.push(`-${name}`);
    if (name === "b") throw new Error("b failed");
    return name;
  };
  const a = queue.run(task("a"), signal);
  const b = queue.run(task("b"), signal);
  const c = queue.run(task("c"), gone.signal);
  const d = queue.run(task("d"), signal);
  gone.abort();
  t.is(await a, "a");
  await t.throwsAsync(b, { message: "b failed" });
  t.true(isPodnetError(await t.throwsAsync(c), "CANCELLED"));
  t.is(await d, "d");
  const late = AbortSignal.abort(new DOMException("late", "TimeoutError"));
  await t.throwsAsync(queue.run(task("e"), late), { code: "DEADLINE_EXCEEDED" });
  await queue.idle();
  t.deepEqual(log, ["+a", "-a", "+b", "-b", "+d", "-d"]);
});
