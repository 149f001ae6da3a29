/** SVG text for the plots of benchmarks. Pure; readable in light and dark. */

type Value = string | number;

/** Escapes text for content and attributes of XML. */
export function escapeXml(text: string): string {
  const names: Readonly<Record<string, string>> = {
    "&": "amp",
    "<": "lt",
    ">": "gt",
    '"': "quot",
    "'": "apos",
  };
  return text.replaceAll(/[&<>"']/g, (each) => `&${names[each]};`);
}

/** One element; numbers are rounded to a tenth. Children are SVG already, a text is escaped. */
export function element(
  name: string,
  attributes: Readonly<Record<string, Value>>,
  children: readonly string[] = [],
): string {
  const words = Object.entries(attributes).map(
    ([key, value]) => ` ${key}="${escapeXml(shortened(value))}"`,
  );
  return children.length === 0
    ? `<${name}${words.join("")}/>`
    : `<${name}${words.join("")}>${children.join("")}</${name}>`;
}

const shortened = (value: Value): string =>
  typeof value === "string" ? value : String(Math.round(value * 10) / 10);

/** A line of text; `anchor` says which of its points is at x. */
export const label = (
  text: string,
  at: { readonly x: number; readonly y: number },
  more: Readonly<Record<string, Value>> = {},
): string => element("text", { ...at, ...more }, [escapeXml(text)]);

/** The colours of series, in light and in dark; a series has the class `sN`. */
const colours = [
  ["#0b6bcb", "#6cb2ff"],
  ["#c4501b", "#ff9b6a"],
  ["#1a7f4b", "#5fd39a"],
  ["#8250b8", "#c9a2f2"],
  ["#a3820b", "#e3c33e"],
  ["#8a8a8a", "#9a9a9a"],
] as const;

const rules = (shade: 0 | 1, text: string, grid: string): string =>
  [
    `text{fill:${text}}`,
    `.grid{stroke:${grid}}`,
    ...colours.map((pair, n) => `.s${n}{fill:${pair[shade]}}.l${n}{stroke:${pair[shade]}}`),
  ].join("");

/** A whole file: a picture with a title for readers who do not see it. */
export function picture(
  { width, height, title }: { width: number; height: number; title: string },
  content: readonly string[],
): string {
  const style = [
    "text{font:12px system-ui,sans-serif}.head{font-weight:600}.line{fill:none;stroke-width:2}",
    rules(0, "#1f2328", "#d0d7de"),
    `@media(prefers-color-scheme:dark){${rules(1, "#e6edf3", "#3d444d")}}`,
  ];
  const attributes = {
    xmlns: "http://www.w3.org/2000/svg",
    width,
    height,
    viewBox: `0 0 ${width} ${height}`,
    role: "img",
  };
  const lines = [element("title", {}, [escapeXml(title)]), element("style", {}, style), ...content];
  return `${element("svg", attributes, ["\n", ...lines.flatMap((line) => [line, "\n"])])}\n`;
}

/** Round values from 0 to `most` for an axis: some five of them, steps of 1, 2 or 5. */
export function ticks(most: number): readonly number[] {
  if (!(most > 0)) return [0];
  const rough = most / 5;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((each) => each * power).find((each) => each >= rough) ?? rough;
  const count = Math.floor(most / step + 1e-9);
  return Array.from({ length: count + 1 }, (_, n) => Number((n * step).toPrecision(6)));
}
