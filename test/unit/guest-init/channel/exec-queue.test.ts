import test from "ava";
import { ExecQueue } from "../../../../guest-init/channel/exec-queue.ts";
import type { ExecEvent } from "../../../../guest-init/channel/guest.ts";

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
