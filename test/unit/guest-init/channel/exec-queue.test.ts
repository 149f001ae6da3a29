import test from "ava";
import { ExecQueue } from "../../../../guest-init/channel/exec-queue.ts";
import type { ExecEvent } from "../../../../guest-init/channel/guest.ts";
import {
  OutputPiece,
  pieceBytes,
  roomInFront,
} from "../../../../guest-init/channel/output-memory.ts";

const output = (kind: "stdout" | "stderr", length: number, fill: number): ExecEvent => ({
  kind,
  data: new Uint8Array(length).fill(fill),
});
const shape = (event: ExecEvent): string =>
  event.kind === "exit" ? `exit ${event.code}` : `${event.kind} ${event.data.length}`;

test("output that waits leaves in a few large events, in its order, and costs nothing then", async (t) => {
  const queue = new ExecQueue(
    () => {},
    () => t.fail("it was read to its end"),
  );
  for (let i = 1; i <= 5; i++) queue.push(output("stdout", 32_000, i));
  queue.push(output("stderr", 5000, 6));
  queue.push(output("stdout", 200_000, 7));
  queue.push(output("stdout", 5000, 8));
  queue.push({ kind: "exit", code: 3 });
  const events: ExecEvent[] = [];
  for await (const event of queue) events.push(event);
  t.deepEqual(events.map(shape), [
    "stdout 128000",
    "stdout 32000",
    "stderr 5000",
    "stdout 200000",
    "stdout 5000",
    "exit 3",
  ]);
  const first = events[0]?.kind === "stdout" ? events[0].data : new Uint8Array(0);
  t.deepEqual(
    [0, 31_999, 32_000, 95_999, 96_000, 127_999].map((at) => first[at]),
    [1, 1, 2, 3, 4, 4],
  );
  t.is(queue.cost, 0);
});

test("what was written before a failure is read before it", async (t) => {
  const queue = new ExecQueue(
    () => {},
    () => {},
  );
  queue.push(output("stdout", 5000, 1));
  queue.push(output("stdout", 5000, 2));
  queue.fail(new Error("the guest is gone"));
  const events: ExecEvent[] = [];
  await t.throwsAsync(
    async () => {
      for await (const event of queue) events.push(event);
    },
    { message: "the guest is gone" },
  );
  t.deepEqual(events.map(shape), ["stdout 10000"]);
});

/** What a queue delivers of output that was pushed from one buffer, which is then overwritten. */
async function delivered(queue: ExecQueue, ...lengths: number[]): Promise<Uint8Array[]> {
  const buffer = new Uint8Array(Math.max(...lengths));
  for (const [i, length] of lengths.entries()) {
    queue.push({ kind: "stdout", data: buffer.fill(i + 1).subarray(0, length) });
    buffer.fill(0xee);
  }
  queue.push({ kind: "exit", code: 0 });
  const found: Uint8Array[] = [];
  for await (const event of queue) if (event.kind === "stdout") found.push(event.data);
  return found;
}

test("what is pushed is copied: little, some and much", async (t) => {
  const queue = new ExecQueue(
    () => {},
    () => {},
  );
  const lengths = [10, 20, 5000, 20_000, 100_000, 30_000, 7];
  const all = Buffer.concat(await delivered(queue, ...lengths));
  t.true(all.equals(Buffer.concat(lengths.map((length, i) => Buffer.alloc(length, i + 1)))));
  t.is(queue.cost, 0);
});

test("a reader that gives nothing back gets memory of the output's own length, or much of it", async (t) => {
  const queue = new ExecQueue(
    () => {},
    () => {},
  );
  const alone = (await delivered(queue, 30_000))[0] as Uint8Array;
  t.is(alone.buffer.byteLength, 30_000);
  const other = new ExecQueue(
    () => {},
    () => {},
  );
  const joined = await delivered(other, 30_000, 30_000, 30_000);
  t.deepEqual(
    joined.map(({ length }) => length),
    [90_000],
  );
});

test("memory of much output is another's only once it is given back, and once", async (t) => {
  const queue = (): ExecQueue => {
    const made = new ExecQueue(
      () => {},
      () => {},
    );
    made.lend();
    return made;
  };
  const memoryOf = async (): Promise<Uint8Array> => {
    const [data] = await delivered(queue(), 30_000);
    return data as Uint8Array;
  };
  const [first, second] = [await memoryOf(), await memoryOf()];
  t.not(first.buffer, second.buffer);
  const piece = OutputPiece.of(first) as OutputPiece;
  t.is(OutputPiece.of(first.subarray(0)), undefined);
  piece.free();
  piece.free();
  const [third, fourth] = [await memoryOf(), await memoryOf()];
  t.is(third.buffer, first.buffer);
  t.not(fourth.buffer, first.buffer);
  // Its new owner's alone.
  t.throws(() => piece.behind(new Uint8Array(1)));
  t.throws(() => piece.data);
  t.false(piece.add(new Uint8Array(1)));
});

test("a piece has room in front, and no more than it has", (t) => {
  const piece = new OutputPiece();
  t.true(piece.add(new Uint8Array(pieceBytes - 1).fill(5)));
  t.false(piece.add(new Uint8Array(2)));
  t.true(piece.add(Uint8Array.of(6)));
  const head = new Uint8Array(roomInFront).fill(9);
  t.true(Buffer.from(piece.behind(head)).equals(Buffer.concat([head, piece.data])));
});
