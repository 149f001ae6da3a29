/** Text as roff prints it: no character of it is a request or an escape. */
export const roff = (text: string): string =>
  text
    .replaceAll("\\", "\\e")
    .replaceAll("-", "\\-")
    .replaceAll(/^(?=[.'])/gm, "\\&");

export const bold = (text: string): string => `\\fB${roff(text)}\\fR`;

/** A page's title, and what the page is made from. */
export const heading = (name: string, section: number, source: string): string =>
  `.\\" Made from ${source} by scripts/generate.\n.TH ${name.toUpperCase().replaceAll("-", "\\-")} ${section} "" podnet "podnet's manual"\n`;

/** A section with its title; nothing where it has no lines. */
export const section = (title: string, lines: readonly string[]): string =>
  lines.length === 0 ? "" : [`.SH ${title}`, ...lines, ""].join("\n");

/** Lines as they are, in a type of one width. */
export const verbatim = (lines: readonly string[]): string[] => [".EX", ...lines.map(roff), ".EE"];

/** Pages such as `podnet(1)`, with commas between them. */
export const seeAlso = (pages: readonly string[]): string[] => [
  pages
    .map((page) =>
      page.replace(/^(.*)\((\d)\)$/, (_, name: string, n: string) => `.BR ${roff(name)} (${n})`),
    )
    .join(" ,\n"),
];
