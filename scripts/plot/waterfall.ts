import { element, label, picture, ticks } from "./svg.ts";

/** One bar: from, to and the series that colours it. */
interface Bar {
  readonly title: string;
  readonly from: number;
  readonly to: number;
  readonly series: number;
}

/** Bars one below the other on an axis of their own. */
export interface Panel {
  readonly title: string;
  readonly bars: readonly Bar[];
}

const width = 820;
const left = 270;
const right = 70;
const rowHeight = 20;
/** Above the bars of a panel: its title; below: its axis. */
const headHeight = 26;
const axisHeight = 34;
const legendHeight = 28;

/** Draws what happened when: a panel for each way of doing it, bars in milliseconds. */
export function waterfall(
  title: string,
  series: readonly string[],
  panels: readonly Panel[],
): string {
  let top = legendHeight;
  const drawn = panels.map((panel) => {
    const at = top;
    top += headHeight + panel.bars.length * rowHeight + axisHeight;
    return drawPanel(panel, at);
  });
  return picture({ width, height: top, title }, [...legend(series), ...drawn.flat()]);
}

/** The series' names, each with its colour. */
export const legend = (series: readonly string[]): readonly string[] =>
  series.flatMap((name, n) => {
    const x = 10 + n * 130;
    return [
      element("rect", { x, y: 8, width: 12, height: 12, class: `s${n}` }),
      label(name, { x: x + 18, y: 18 }),
    ];
  });

function drawPanel({ title, bars }: Panel, top: number): readonly string[] {
  const most = Math.max(...bars.map(({ to }) => to));
  const scale = (width - left - right) / most;
  const x = (value: number): number => left + value * scale;
  const first = top + headHeight;
  const bottom = first + bars.length * rowHeight;
  return [
    label(title, { x: 10, y: top + 16 }, { class: "head" }),
    ...ticks(most).flatMap((tick) => [
      element("line", { x1: x(tick), x2: x(tick), y1: first, y2: bottom, class: "grid" }),
      label(`${tick}`, { x: x(tick), y: bottom + 15 }, { "text-anchor": "middle" }),
    ]),
    label("ms", { x: width - right + 30, y: bottom + 15 }),
    ...bars.flatMap((bar, n) => {
      const y = first + n * rowHeight;
      // What is too short to be seen has a hair's breadth.
      const length = Math.max((bar.to - bar.from) * scale, 1);
      return [
        label(bar.title, { x: left - 8, y: y + 14 }, { "text-anchor": "end" }),
        element("rect", {
          x: x(bar.from),
          y: y + 3,
          width: length,
          height: rowHeight - 6,
          class: `s${bar.series}`,
        }),
        label(milliseconds(bar.to - bar.from), { x: x(bar.from) + length + 5, y: y + 14 }),
      ];
    }),
  ];
}

/** Three digits at most: 0.4, 12.3, 163. */
export const milliseconds = (value: number): string =>
  value >= 99.5 ? value.toFixed(0) : value >= 0.95 ? value.toFixed(1) : value.toFixed(2);
