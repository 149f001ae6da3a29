import { element, label, picture, ticks } from "./svg.ts";
import { legend } from "./waterfall.ts";

/** A series of measured points. */
export interface Line {
  readonly name: string;
  readonly points: readonly (readonly [x: number, y: number])[];
}

const [width, height, left, right, top, bottom] = [820, 320, 70, 40, 40, 50];

/** Draws cost (y) by number (x), both axes from 0. */
export function lineChart(
  title: string,
  axes: { readonly x: string; readonly y: string },
  lines: readonly Line[],
): string {
  const points = lines.flatMap((line) => line.points);
  const most = (n: 0 | 1): number => Math.max(...points.map((point) => point[n])) || 1;
  const [mostX, mostY] = [most(0), most(1)];
  const x = (value: number): number => left + (value * (width - left - right)) / mostX;
  const y = (value: number): number => height - bottom - (value * (height - top - bottom)) / mostY;
  return picture({ width, height, title }, [
    ...legend(lines.map(({ name }) => name)),
    ...ticks(mostY).flatMap((tick) => [
      element("line", { x1: left, x2: width - right, y1: y(tick), y2: y(tick), class: "grid" }),
      label(`${tick}`, { x: left - 8, y: y(tick) + 4 }, { "text-anchor": "end" }),
    ]),
    ...ticks(mostX).map((tick) =>
      label(`${tick}`, { x: x(tick), y: height - bottom + 18 }, { "text-anchor": "middle" }),
    ),
    label(axes.x, { x: (left + width - right) / 2, y: height - 10 }, { "text-anchor": "middle" }),
    label(axes.y, { x: left - 8, y: top - 8 }),
    ...lines.map((line, n) =>
      element("polyline", {
        points: line.points.map(([a, b]) => `${x(a).toFixed(1)},${y(b).toFixed(1)}`).join(" "),
        class: `line l${n}`,
      }),
    ),
  ]);
}
