import { readFileSync } from "node:fs";
import path from "node:path";

const reference = path.resolve(import.meta.dirname, "../../docs/reference");
const read = (page: string): string => readFileSync(path.join(reference, page), "utf8");

/** The pages that explain the codes, in the order in which docs/reference/errors.md links them. */
const pages = (): string[] =>
  [...read("errors.md").matchAll(/^\| \[[^\]]+\]\((errors\/\w+\.md)\)/gm)].map(([, page = ""]) =>
    read(page),
  );

/** Markdown for a terminal: without the marks of code and links. */
const plain = (text: string): string =>
  text.replaceAll(/\[([^\]]*)\]\([^)]*\)/g, "$1").replaceAll("`", "");

/** Begins on a line of its own: the lines of the pages are as long as lines may be. */
const quoted = (text: string): string => `\`\n${text.replaceAll(/\\|\$\{/g, String.raw`\$&`)}\``;

/**
 * The module by which the CLI explains codes: what docs/reference/errors says, which a package does
 * not have next to it. Status and exit code are left out: the code knows them.
 */
export function errorTextsModule(): string {
  const sections = pages().flatMap((page) => [
    ...page.matchAll(/^## ([A-Z_]+)\n([^]*?)\n\nStatus `\w+`, exit \d+\.$/gm),
  ]);
  const entries = sections.map(([, code, text = ""]) => `  ${code}: ${quoted(plain(text))},\n`);
  return `import type { ErrorCode } from "../core/errors.ts";

// Made from docs/reference/errors by scripts/generate.

/** What each code means, and, after an empty line, what to do. */
export const errorTexts: Readonly<Record<ErrorCode, string>> = {
${entries.join("")}};
`;
}
