import { milliseconds, type Panel, waterfall } from "../../plot/waterfall.ts";
import { type Part, parties } from "./timeline.ts";

/** A path: its name, what it took and where that went. */
export interface Path {
  readonly name: string;
  readonly title: string;
  readonly totalMs: number;
  readonly parts: readonly Part[];
  /** What the bare work without podnet takes, drawn next to it. */
  readonly floor?: { readonly title: string; readonly ms: number };
}

/** A table of Markdown: where the milliseconds of a path go. */
export function tableOf({ title, totalMs, parts }: Path): string {
  const used = parties.filter((party) => parts.some(({ shares }) => shares[party] >= 0.005));
  const line = (...cells: readonly string[]): string => `| ${cells.join(" | ")} |`;
  const cell = (value: number): string => (value < 0.005 ? "" : milliseconds(value));
  const sum = (party: (typeof parties)[number]): number =>
    parts.reduce((all, { shares }) => all + shares[party], 0);
  return [
    line(title, "ms", ...used),
    line("---", ...["", ...used].map(() => "---:")),
    ...parts.map((part) =>
      line(part.title, cell(part.to - part.from), ...used.map((party) => cell(part.shares[party]))),
    ),
    line("**all**", `**${milliseconds(totalMs)}**`, ...used.map((party) => cell(sum(party)))),
  ].join("\n");
}

/** The plot of several paths, one below the other. */
export const plotOf = (title: string, paths: readonly Path[]): string =>
  waterfall(title, [...parties, "without podnet"], paths.map(panelOf));

const panelOf = ({ title, totalMs, parts, floor }: Path): Panel => ({
  title: `${title}: ${milliseconds(totalMs)} ms`,
  bars: [
    ...parts.map(({ party, ...bar }) => ({ ...bar, series: parties.indexOf(party) })),
    ...(floor === undefined
      ? []
      : [{ title: floor.title, from: 0, to: floor.ms, series: parties.length }]),
  ],
});
