import test from "ava";
import * as fc from "fast-check";
import { ConsoleRing } from "../../../../hypervisor/console/console.ts";

test("the ring holds the last bytes, as a plain array would", (t) => {
  const writes = fc.array(fc.uint8Array({ maxLength: 40 }));
  fc.assert(
    fc.property(writes, fc.integer({ min: 1, max: 50 }), (chunks, size) => {
      const ring = new ConsoleRing(size);
      let model: number[] = [];
      for (const chunk of chunks) {
        const lost = ring.write(chunk);
        const all = [...model, ...chunk];
        model = all.slice(-size);
        t.is(lost, all.length - model.length);
        t.deepEqual([...ring.tail()], model);
      }
    }),
  );
});

test("a ring takes no more memory than it holds, whatever goes through it", (t) => {
  const before = process.memoryUsage().arrayBuffers;
  const ring = new ConsoleRing();
  const chunk = Buffer.alloc(1 << 20, "x");
  for (let i = 0; i < 64; i++) ring.write(chunk);
  t.is(ring.tail().length, 1 << 20);
  const grown = process.memoryUsage().arrayBuffers - before;
  t.true(grown < 32 << 20, `${grown} bytes`);
});

test("a follower gets what is there and what follows, until the end", async (t) => {
  const ring = new ConsoleRing();
  ring.write(Buffer.from("one "));
  const seen: string[] = [];
  const following = (async () => {
    for await (const bytes of ring.follow(new AbortController().signal))
      seen.push(Buffer.from(bytes).toString());
  })();
  await new Promise(setImmediate);
  ring.write(Buffer.from("two "));
  ring.write(Buffer.from("three"));
  await new Promise(setImmediate);
  ring.close();
  await following;
  t.is(seen.join(""), "one two three");
});

test("a follower too slow for the ring misses what was overwritten, nothing else", async (t) => {
  const ring = new ConsoleRing(4);
  const stop = new AbortController();
  const follower = ring.follow(stop.signal);
  ring.write(Buffer.from("ab"));
  t.is(Buffer.from((await follower.next()).value ?? []).toString(), "ab");
  ring.write(Buffer.from("cdefgh"));
  ring.write(Buffer.from("ij"));
  t.is(Buffer.from((await follower.next()).value ?? []).toString(), "ghij");
  stop.abort();
  t.true((await follower.next()).done);
});

test("a follower first gets what there is, be it nothing; aborting ends one that waits", async (t) => {
  const ring = new ConsoleRing();
  const stop = new AbortController();
  const follower = ring.follow(stop.signal);
  t.deepEqual(await follower.next(), { done: false, value: new Uint8Array(0) });
  const next = follower.next();
  stop.abort();
  t.true((await next).done);
});
