import test from "ava";
import { lastLine, summarise } from "../../../scripts/measure.ts";

test("median and 99th percentile", (t) => {
  t.deepEqual(summarise([5]), { median: 5, p99: 5, count: 1 });
  const hundred = Array.from({ length: 100 }, (_, i) => 100 - i);
  t.deepEqual(summarise(hundred), { median: 51, p99: 100, count: 100 });
  t.throws(() => summarise([]));
});

test("a benchmark's last line is one a program can read", (t) => {
  t.is(
    lastLine("pod", { ready_ms: 1222.64321, ready_ratio: 0.9655 }),
    "pod ready_ms=1223 ready_ratio=0.9655",
  );
});
