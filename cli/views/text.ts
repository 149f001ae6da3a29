import { styleText } from "node:util";
import { shown } from "../../core/shown.ts";
import type { Output } from "../io.ts";

export type Style = "bold" | "dim" | "red" | "green" | "yellow" | "cyan";

/** Text in a colour when the stream is a terminal and NO_COLOR is not set. */
export const styled = (out: Output, style: Style, text: string): string =>
  out.isTTY === true ? styleText(style, text, { stream: out }) : text;

/** Text from elsewhere, made harmless to a terminal: what steers it is shown, not obeyed. */
export const harmless = (text: string): string => shown(text, 65_536);

/** A duration for people: `0.42 ms`, `38 ms`, `1.62 s`, `3 min`. */
export function duration(ms: number): string {
  if (ms < 1) return `${ms.toFixed(2)} ms`;
  if (ms < 10) return `${ms.toFixed(1)} ms`;
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 120_000) return `${(ms / 1000).toFixed(2)} s`;
  return `${Math.round(ms / 60_000)} min`;
}

/** An amount of data for people: `900 B`, `1.4 kB`, `23 MB`. */
export function size(bytes: number): string {
  const units = ["B", "kB", "MB", "GB", "TB", "PB"];
  const unit = Math.min(Math.floor(Math.log10(Math.max(bytes, 1)) / 3), units.length - 1);
  const amount = bytes / 1000 ** unit;
  return `${unit === 0 || amount >= 10 ? Math.round(amount) : amount.toFixed(1)} ${units[unit]}`;
}

/** A count for people, which may be larger than a number holds: `250`, `1.8e+19`. */
export const amount = (digits: string): string =>
  digits.length < 10 ? digits : Number(digits).toExponential(1);

/** An age for people: `5 s`, `12 min`, `3 h`, `9 d`. */
export function age(ms: number): string {
  const seconds = Math.max(0, Math.floor(ms / 1000));
  if (seconds < 120) return `${seconds} s`;
  if (seconds < 7200) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 172_800) return `${Math.floor(seconds / 3600)} h`;
  return `${Math.floor(seconds / 86_400)} d`;
}

/** Lines of left-aligned columns, two spaces apart, without trailing blanks. */
export function columns(rows: readonly (readonly string[])[]): string[] {
  const widths: number[] = [];
  for (const row of rows) {
    row.forEach((cell, i) => {
      widths[i] = Math.max(widths[i] ?? 0, cell.length);
    });
  }
  return rows.map((row) =>
    row
      .map((cell, i) => cell.padEnd(widths[i] ?? 0))
      .join("  ")
      .trimEnd(),
  );
}

/** A table with a heading. */
export function table(heading: readonly string[], rows: readonly (readonly string[])[]): string {
  return `${columns([heading, ...rows]).join("\n")}\n`;
}

/** Writes a table. A terminal gets of each line what fits into it, so that columns stay columns. */
export function printTable(
  out: Output,
  heading: readonly string[],
  rows: readonly (readonly string[])[],
): void {
  const width = (out.isTTY === true ? out.columns : undefined) ?? Number.POSITIVE_INFINITY;
  const cut = (line: string): string =>
    line.length > width ? `${line.slice(0, width - 1)}…` : line;
  out.write(
    `${columns([heading, ...rows])
      .map(cut)
      .join("\n")}\n`,
  );
}

/** Rows as RFC 4180 has them: a value with a comma, a quote or a line end stands in quotes. */
export const csv = (rows: readonly (readonly string[])[]): string =>
  rows
    .map((row) => row.map((value) => (/[",\r\n]/.test(value) ? quoted(value) : value)).join(","))
    .map((line) => `${line}\r\n`)
    .join("");

const quoted = (value: string): string => `"${value.replaceAll('"', '""')}"`;

/** `1 pod`, `2 pods`. */
export const count = (n: number, noun: string): string => `${n} ${noun}${n === 1 ? "" : "s"}`;
