import { once } from "node:events";
import { mkdtempSync } from "node:fs";
import { connect, createServer, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test from "ava";
import { TokenBucket } from "../../../../core/token-bucket.ts";
import { PacedSocket, type Worked } from "../../../../linux/sockets/paced-socket.ts";
import { connectUnix } from "../../../../linux/sockets/unix-socket.ts";
import { LoopTurns } from "../../../../linux/loop-turns.ts";

let opened = 0;

/** Both ends of a unix socket: what a guest writes to, and what the host reads. */
async function ends(): Promise<{ guest: Socket; host: Socket } & AsyncDisposable> {
  const server = createServer({ pauseOnConnect: true });
  const path = `\0podnet-paced-${process.pid}-${++opened}`;
  server.listen(path);
  const accepted = once(server, "connection");
  const guest = connect(path);
  const [host] = (await accepted) as [Socket];
  for (const socket of [guest, host]) socket.on("error", () => {});
  return {
    guest,
    host,
    [Symbol.asyncDispose]: async () => {
      guest.destroy();
      host.destroy();
      server.close();
      await once(server, "close");
    },
  };
}

/** Frames of eight bytes, each a unit of work and a token. */
const frame = 8;
const frames = (bytes: Uint8Array, most: number): Worked => {
  const units = Math.min(most, Math.max(1, Math.floor(bytes.length / frame)));
  return { bytes: Math.min(bytes.length, units * frame), units, tokens: units };
};

const numbered = (length: number): Uint8Array => Uint8Array.from({ length }, (_, i) => i % 251);

/** What is not expected to be called here. */
const fails = { source: "guest", drop: () => {} } as const;

test("a token bucket may be in debt, and pays it off", (t) => {
  let now = 0;
  const bucket = new TokenBucket(
    { perSecond: 10, burst: 5 },
    { now: () => now, monotonic: () => now },
  );
  bucket.charge(15);
  t.is(bucket.tokens, -10);
  t.is(bucket.waitMs, 1100);
  t.false(bucket.take());
  now = 1_100;
  t.true(bucket.take());
  now = 1_000_000;
  t.is(bucket.tokens, 5);
});

test("the work of one turn of the event loop is bounded, for one sender and for all", async (t) => {
  // Each unit takes 4 µs.
  let now = 0;
  const turns = new LoopTurns({ now: () => now, monotonic: () => now });
  const total = 256 * 1024;
  /** Units of each sender since the event loop looked at connections last. */
  let units = Array.from({ length: 6 }, () => 0);
  const looks: (readonly number[])[] = [];
  let isOver = false;
  const look = (): void => {
    looks.push(units);
    units = units.map(() => 0);
    if (!isOver) setImmediate(look);
  };
  setImmediate(look);
  await using all = new AsyncDisposableStack();
  const read = await Promise.all(
    Array.from({ length: 6 }, async (_, reader) => {
      const { guest, host } = all.use(await ends());
      const found: Uint8Array[] = [];
      const pace = new PacedSocket(host, {
        ...fails,
        turns,
        work: (bytes, most) => {
          const worked = frames(bytes, most);
          found.push(Uint8Array.from(bytes.subarray(0, worked.bytes)));
          now += worked.units * 0.004;
          units[reader] = (units[reader] ?? 0) + worked.units;
          return worked;
        },
      });
      guest.end(numbered(total));
      pace.resume();
      await once(host, "end");
      return Buffer.concat(found);
    }),
  );
  isOver = true;
  for (const bytes of read) t.true(bytes.equals(numbered(total)));
  // A turn has a piece that begins at once, and one that has waited; two looks see parts of two
  // turns at most.
  t.true(Math.max(...looks.flat()) <= 2 * 512, "one sender");
  const sums = looks.map((each) => each.reduce((sum, count) => sum + count));
  // 4 ms of both, and what of the last piece of each is over that.
  const most = 2 * 2 * (1000 + 256);
  t.true(Math.max(...sums) <= most, `${Math.max(...sums)} units between two looks`);
});

test("a sender above its rate is not read meanwhile, and nothing of it is lost", async (t) => {
  await using both = await ends();
  const { guest, host } = both;
  const reported: boolean[] = [];
  let units = 0;
  const slowed = Promise.withResolvers<void>();
  const over = Promise.withResolvers<void>();
  const pace = new PacedSocket(host, {
    ...fails,
    rate: { perSecond: 4000, burst: 1000 },
    tooFastMs: 200,
    tooFast: (is) => {
      reported.push(is);
      (is ? slowed : over).resolve();
    },
    work: (bytes, most) => {
      const worked = frames(bytes, most);
      units += worked.units;
      return worked;
    },
  });
  pace.resume();
  const begun = performance.now();
  guest.write(new Uint8Array(4000 * frame));
  await slowed.promise;
  t.true(pace.paused);
  const after = (performance.now() - begun) / 1000;
  t.true(units <= 1000 + 4000 * after + 300, `${units} units in ${after} s`);
  await over.promise;
  t.is(units, 4000);
  t.false(pace.paused);
  t.deepEqual(reported, [true, false]);
});

test("what is held by its reader stays unread, and is read when it is let go", async (t) => {
  await using both = await ends();
  const { guest, host } = both;
  let units = 0;
  const first = Promise.withResolvers<void>();
  const pace = new PacedSocket(host, {
    ...fails,
    work: (bytes) => {
      units++;
      if (units === 1) {
        pace.pause();
        first.resolve();
      }
      return { bytes: Math.min(frame, bytes.length), units: 1, tokens: 1 };
    },
  });
  pace.resume();
  guest.end(new Uint8Array(10 * frame));
  await first.promise;
  for (let i = 0; i < 20; i++) await new Promise((resolve) => setImmediate(resolve));
  t.is(units, 1);
  pace.resume();
  await once(host, "end");
  t.is(units, 10);
});

test("sockets that read into the same memory lose nothing, held or out of turn", async (t) => {
  const total = 600 * 1024;
  await using all = new AsyncDisposableStack();
  const read = await Promise.all(
    Array.from({ length: 3 }, async (_, reader) => {
      const server = createServer((guest) => {
        guest.on("error", () => {});
        guest.end(numbered(total).map((byte) => byte ^ reader));
      });
      const path = join(mkdtempSync(join(tmpdir(), "podnet-paced-")), "s");
      server.listen(path);
      await once(server, "listening");
      all.defer(() => void server.close());
      const connection = all.use(await connectUnix(path));
      const found: Buffer[] = [];
      const host = connection.readInto((bytes) => pace.take(bytes));
      let pieces = 0;
      const pace: PacedSocket = new PacedSocket(host, {
        ...fails,
        given: true,
        work: (bytes, most) => {
          const worked = frames(bytes, most);
          found.push(Buffer.from(bytes.subarray(0, worked.bytes)));
          // In the middle of what was read.
          if (++pieces % 5 === 0) {
            pace.pause();
            setTimeout(() => pace.resume(), 1);
          }
          return worked;
        },
      });
      await once(host, "end");
      return Buffer.concat(found);
    }),
  );
  for (const [reader, bytes] of read.entries())
    t.true(bytes.equals(numbered(total).map((byte) => byte ^ reader)), `${reader}`);
});
