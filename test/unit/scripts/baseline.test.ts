import { existsSync, readFileSync } from "node:fs";
import path from "node:path";
import test from "ava";
import { type Baseline, medianOf, readLastLine, worseThan } from "../../../scripts/baseline.ts";

const baseline: Baseline = {
  options: [],
  ratios: { add_ratio: { is: 5, better: "more" }, growth: { is: 1, better: "less" } },
};

test("a last line is read, and only the benchmark's own", (t) => {
  t.deepEqual(readLastLine("cni", "a table\ncni add_ratio=4.6 growth=1.03\n"), {
    add_ratio: 4.6,
    growth: 1.03,
  });
  t.throws(() => readLastLine("cni", "Error: no\n"), { message: /ended with "Error: no"/ });
});

test("a quarter worse is borne, more is not; better never fails", (t) => {
  t.deepEqual(worseThan(baseline, [{ add_ratio: 4, growth: 1.25 }]), []);
  t.deepEqual(worseThan(baseline, [{ add_ratio: 50, growth: 0.1 }]), []);
  t.like(worseThan(baseline, [{ add_ratio: 3.9, growth: 1 }]), [{ ratio: "add_ratio", is: 3.9 }]);
  t.like(worseThan(baseline, [{ add_ratio: 5, growth: 1.3 }]), [{ ratio: "growth", was: 1 }]);
});

test("the median of the runs counts", (t) => {
  const runs = [3, 4.9, 5.1].map((add_ratio) => ({ add_ratio, growth: 1 }));
  t.is(medianOf("add_ratio", runs), 4.9);
  t.deepEqual(worseThan(baseline, runs), []);
});

test("a ratio that is missing or no number is worse", (t) => {
  t.is(worseThan(baseline, [{ growth: 1 }]).length, 1);
  t.is(worseThan(baseline, [{ add_ratio: Number.NaN, growth: 1 }]).length, 1);
});

test("the committed baseline names benchmarks that exist, and figures that they print", (t) => {
  const directory = path.resolve(import.meta.dirname, "../../../scripts/bench.d");
  const all = JSON.parse(readFileSync(path.join(directory, "baseline.json"), "utf8")) as Record<
    string,
    Baseline
  >;
  for (const [name, { ratios }] of Object.entries(all)) {
    const program = path.join(directory, `${name}.ts`);
    t.true(existsSync(program), name);
    const source = readFileSync(program, "utf8");
    for (const [ratio, { is }] of Object.entries(ratios)) {
      t.regex(source, new RegExp(`\\b${ratio}(?::|,| =)`), `${name} prints ${ratio}`);
      t.true(is > 0, `${name} ${ratio}`);
    }
  }
});
