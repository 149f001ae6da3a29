import test from "ava";
import { lineChart } from "../../../../scripts/plot/lines.ts";
import { milliseconds, waterfall } from "../../../../scripts/plot/waterfall.ts";

/** The attributes of all elements of a name. */
const all = (svg: string, name: string): Record<string, string>[] =>
  [...svg.matchAll(new RegExp(`<${name} ([^>]*?)/?>`, "g"))].map(([, words = ""]) =>
    Object.fromEntries(
      [...words.matchAll(/([\w-]+)="([^"]*)"/g)].map(([, key = "", value = ""]) => [key, value]),
    ),
  );

test("a bar begins where the one before ends, and is as long as its time", (t) => {
  const svg = waterfall(
    "x",
    ["a", "b"],
    [
      {
        title: "one",
        bars: [
          { title: "first", from: 0, to: 25, series: 0 },
          { title: "second", from: 25, to: 100, series: 1 },
        ],
      },
    ],
  );
  const bars = all(svg, "rect").filter(({ height }) => height === "14");
  t.deepEqual(
    bars.map(({ class: series }) => series),
    ["s0", "s1"],
  );
  const [first, second] = bars.map(({ x, width }) => ({ x: Number(x), width: Number(width) }));
  t.is((first?.x ?? 0) + (first?.width ?? 0), second?.x ?? 0);
  t.is((second?.width ?? 0) / (first?.width ?? 1), 3);
  t.true(svg.includes(">25.0</text>"));
});

test("each panel has an axis of its own", (t) => {
  const panel = (title: string, to: number) => ({
    title,
    bars: [{ title: "all", from: 0, to, series: 0 }],
  });
  const svg = waterfall("x", ["a"], [panel("slow", 2000), panel("fast", 20)]);
  const widths = all(svg, "rect")
    .filter(({ height }) => height === "14")
    .map(({ width }) => width);
  t.is(widths[0], widths[1]);
  t.true(svg.includes(">2000</text>"));
  t.true(svg.includes(">20</text>"));
});

test("lines share both axes", (t) => {
  const svg = lineChart("x", { x: "pods", y: "ms" }, [
    {
      name: "low",
      points: [
        [0, 0],
        [1000, 50],
      ],
    },
    {
      name: "high",
      points: [
        [0, 100],
        [1000, 100],
      ],
    },
  ]);
  const [low, high] = all(svg, "polyline").map(({ points = "" }) =>
    points.split(" ").map((point) => point.split(",").map(Number) as [number, number]),
  );
  t.is(low?.[1]?.[0], high?.[1]?.[0]);
  t.is(low?.[1]?.[1], ((low?.[0]?.[1] ?? 0) + (high?.[0]?.[1] ?? 0)) / 2);
});

test("figures have three digits", (t) => {
  t.deepEqual([2073, 163.4, 12.34, 0.951, 0.4].map(milliseconds), [
    "2073",
    "163",
    "12.3",
    "1.0",
    "0.40",
  ]);
});
