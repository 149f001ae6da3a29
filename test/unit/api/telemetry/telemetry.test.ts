import test from "ava";
import fc from "fast-check";
import { tracesUrl } from "../../../../api/telemetry/collector-url.ts";
import { type FinishedSpan, otlpBody } from "../../../../api/telemetry/otlp.ts";
import { oneAtATime } from "../../../../api/telemetry/send-spans.ts";
import {
  childOf,
  formatTraceparent,
  parseTraceparent,
} from "../../../../api/telemetry/trace-context.ts";

const traceId = "0af7651916cd43dd8448eb211c80319c";
const spanId = "b7ad6b7169203331";

test("a traceparent is read as it is written", (t) => {
  const text = `00-${traceId}-${spanId}-01`;
  const context = parseTraceparent(text);
  t.deepEqual(context, { traceId, spanId, sampled: true });
  t.is(context && formatTraceparent(context), text);
  t.false(parseTraceparent(`00-${traceId}-${spanId}-02`)?.sampled);
  // A later version may have more.
  t.is(parseTraceparent(`cc-${traceId}-${spanId}-01-what-comes`)?.traceId, traceId);
});

for (const wrong of [
  "",
  "00",
  `00-${traceId}-${spanId}`,
  `ff-${traceId}-${spanId}-01`,
  `00-${"0".repeat(32)}-${spanId}-01`,
  `00-${traceId}-${"0".repeat(16)}-01`,
  `00-${traceId.toUpperCase()}-${spanId}-01`,
  `00-${traceId}-${spanId}-01-more`,
  `00-${traceId}-${spanId}-01\n`,
  ` 00-${traceId}-${spanId}-01`,
])
  test(`${JSON.stringify(wrong)} begins a new trace`, (t) => {
    t.is(parseTraceparent(wrong), undefined);
  });

test("whatever a caller sends is no error", (t) => {
  t.notThrows(() =>
    fc.assert(
      fc.property(fc.string({ unit: "binary" }), (text) => {
        const context = parseTraceparent(text);
        return context === undefined || formatTraceparent(context).slice(2) === text.slice(2, 55);
      }),
    ),
  );
});

test("a child stays in its trace, and has an id of its own", (t) => {
  const parent = childOf(undefined);
  const child = childOf(parent);
  t.is(child.traceId, parent.traceId);
  t.not(child.spanId, parent.spanId);
  t.regex(child.spanId, /^[0-9a-f]{16}$/);
  t.false(childOf({ ...parent, sampled: false }).sampled);
});

test("a span's times are nanoseconds, its numbers text, and its ids hexadecimal", (t) => {
  const span: FinishedSpan = {
    context: { traceId, spanId, sampled: true },
    parentId: undefined,
    name: "podnet.v1.PodService/Get",
    kind: "server",
    startMs: 1_764_288_000_000.25,
    endMs: 1_764_288_000_001.5,
    attributes: { text: "a", whole: 3, part: 0.5, yes: true },
    error: "no such pod",
  };
  const { resourceSpans } = JSON.parse(otlpBody("podnetd", "node-1", [span]));
  t.deepEqual(resourceSpans[0].scopeSpans[0].spans, [
    {
      traceId,
      spanId,
      name: "podnet.v1.PodService/Get",
      kind: 2,
      startTimeUnixNano: "1764288000000250000",
      endTimeUnixNano: "1764288000001500000",
      attributes: [
        { key: "text", value: { stringValue: "a" } },
        { key: "whole", value: { intValue: "3" } },
        { key: "part", value: { doubleValue: 0.5 } },
        { key: "yes", value: { boolValue: true } },
      ],
      status: { code: 2, message: "no such pod" },
    },
  ]);
});

test("a collector's URL gets the path of traces behind its own", (t) => {
  t.is(tracesUrl("http://127.0.0.1:4318").href, "http://127.0.0.1:4318/v1/traces");
  t.is(tracesUrl("https://otel.local/in/").href, "https://otel.local/in/v1/traces");
  for (const wrong of [
    "",
    "collector:4318",
    "grpc://a",
    "http://u:p@a",
    "http://a?b",
    "http://a#b",
  ])
    t.throws(() => tracesUrl(wrong), { code: "INVALID_ARGUMENT" }, wrong);
});

test("a text that was cut within a character is whole in a span", (t) => {
  const half = "\ud83d";
  const span: FinishedSpan = {
    context: childOf(undefined),
    parentId: undefined,
    name: `n${half}`,
    kind: "server",
    startMs: 1,
    endMs: 2,
    attributes: { a: `a${half}` },
    error: `e${half}`,
  };
  t.notRegex(otlpBody("podnetd", "host", [span]), /\\ud83d/);
});

test("a name is looked up once at a time, whoever waits for it", (t) => {
  const asked: ((error: Error | null, address: string, family: number) => void)[] = [];
  const look = oneAtATime(
    ((_name: string, _options: object, callback: never) => void asked.push(callback)) as never,
  );
  const heard: string[] = [];
  const hear = (_error: Error | null, address: unknown): void => void heard.push(String(address));
  for (let attempt = 0; attempt < 9; attempt++) look("collector", { all: true }, hear);
  t.is(asked.length, 1);
  asked[0]?.(null, "192.0.2.1", 4);
  t.is(heard.length, 9);
  look("collector", { all: true }, hear);
  t.is(asked.length, 2, "the answer is not kept");
});
