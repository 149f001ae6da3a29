import test from "ava";

/** poll(2)'s bit. */
const readable = 1;

/** The agent's one call of its kernel here: what is ready, by descriptor. */
const ready = new Set<number>();
Object.assign(globalThis, {
  podnetSys: {
    poll(set: Int32Array, _timeout: number, count: number, found: Int32Array) {
      let used = 0;
      for (let i = 0; i < count; i++) {
        if (!ready.has(set[2 * i] as number) || set[2 * i + 1] === 0) continue;
        found.set([i, readable], 2 * used++);
      }
      return used;
    },
  },
});

test.serial(
  "watches come and go in a round, and each is called for its own descriptor",
  async (t) => {
    const { Loop } = await import("../../../../guest-init/agent/loop.ts");
    const loop = new Loop((thrown) => t.fail(String(thrown)));
    const called: number[] = [];
    const watch = (fd: number, then: () => void = () => {}) =>
      loop.watch(fd, readable, () => {
        called.push(fd);
        then();
      });
    const rounds = (...fds: number[]): number[] => {
      ready.clear();
      for (const fd of fds) ready.add(fd);
      called.length = 0;
      loop.tick();
      return called.toSorted((a, b) => a - b);
    };
    // More than the first set has room for.
    const watches = new Map(Array.from({ length: 40 }, (_, i) => [i + 10, watch(i + 10)]));
    t.deepEqual(rounds(10, 30, 49), [10, 30, 49]);
    watches.get(10)?.stop();
    watches.get(10)?.stop();
    watches.get(30)?.events(0);
    t.deepEqual(rounds(10, 30, 48, 49), [48, 49]);
    watches.get(30)?.events(readable);
    t.deepEqual(rounds(10, 30), [30]);
    // One that stops others, and starts one with a stopped one's number.
    const first = watch(5, () => {
      for (const fd of [48, 49]) watches.get(fd)?.stop();
      watch(48);
      first.stop();
    });
    const now = rounds(5, 11, 48, 49);
    t.true(now.includes(5) && now.includes(11));
    t.true(now.filter((fd) => fd === 48).length <= 1);
    t.deepEqual(rounds(5, 11, 48, 49), [11, 48]);
  },
);
