import { once } from "node:events";
import test, { type ExecutionContext } from "ava";
import type { FinishedSpan } from "../../../../api/telemetry/otlp.ts";
import type { Sent } from "../../../../api/telemetry/send-spans.ts";
import { childOf } from "../../../../api/telemetry/trace-context.ts";
import { watchDefects } from "../../../../core/guard.ts";
import { Exporter } from "../../../../daemon/telemetry/exporter.ts";
import type { Log } from "../../../../linux/log.ts";

const span = (): FinishedSpan => ({
  context: childOf(undefined),
  parentId: undefined,
  name: "podnet.v1.PodService/Get",
  kind: "server",
  startMs: 1000,
  endMs: 1001,
  attributes: {},
  error: undefined,
});

/** An exporter to a collector that answers as `answer` says, and the sizes of what it got. */
function playCollector(answer: (signal: AbortSignal) => Sent | Promise<Sent>) {
  const batches: number[] = [];
  const lines: string[] = [];
  const say = (_fields: unknown, message: string): void => void lines.push(message);
  const log = { info: say, warn: say } as unknown as Log;
  const exporter = new Exporter({
    url: new URL("http://127.0.0.1:4318/v1/traces"),
    log,
    async send(_url, body, signal) {
      batches.push(JSON.parse(body).resourceSpans[0].scopeSpans[0].spans.length);
      return answer(signal);
    },
  });
  return { exporter, batches, lines };
}

const add = (exporter: Exporter, count: number): void => {
  for (let n = 0; n < count; n++) exporter.add(span());
};

test("what waits is sent in batches, and once", async (t) => {
  const { exporter, batches } = playCollector(() => "taken");
  add(exporter, 1200);
  await exporter[Symbol.asyncDispose]();
  t.deepEqual(batches, [512, 512, 176]);
  t.is(exporter.dropped, 0);
});

test("a collector that is away costs a bounded number of spans, and is asked once an attempt", async (t: ExecutionContext) => {
  const { exporter, batches, lines } = playCollector(() => "later");
  add(exporter, 5000);
  t.is(exporter.dropped, 5000 - 2048);
  await exporter[Symbol.asyncDispose]();
  t.deepEqual(batches, [512]);
  t.deepEqual(lines, ["The collector does not take spans"]);
});

test("what a collector refuses is dropped, counted and not sent again", async (t) => {
  const answers: Sent[] = ["refused", "taken"];
  const { exporter, batches, lines } = playCollector(() => answers.shift() ?? "taken");
  add(exporter, 600);
  await exporter[Symbol.asyncDispose]();
  t.deepEqual(batches, [512, 88]);
  t.is(exporter.dropped, 512);
  t.deepEqual(lines, ["The collector refuses spans", "The collector takes spans again"]);
});

test("a collector that takes each request at the last moment does not hold up podnetd's end", async (t) => {
  const { exporter, batches } = playCollector(async (signal) => {
    await once(signal, "abort");
    return "taken" as const;
  });
  add(exporter, 2048);
  await exporter[Symbol.asyncDispose]();
  t.deepEqual(batches, [512]);
});

test("spans that cannot be sent are dropped, and do not stand before those that can", async (t) => {
  const defects: unknown[] = [];
  watchDefects((_place, thrown) => void defects.push(thrown));
  t.teardown(() => watchDefects(undefined));
  const { exporter, batches } = playCollector(() => "taken");
  exporter.add({ ...span(), startMs: Number.NaN });
  await exporter[Symbol.asyncDispose]();
  t.is(exporter.dropped, 1);
  t.is(defects.length, 1);
  add(exporter, 1);
  await exporter[Symbol.asyncDispose]();
  t.deepEqual(batches, [1]);
});
