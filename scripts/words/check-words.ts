/**
 * Finds words of our own where the field has a term, comments that begin with a pronoun, and lines
 * of comments and Markdown above 100 columns. Prints each finding, and exits 1 if there are any, or
 * if an exception is not needed any more.
 *
 *   TEXT  looks only at files whose path contains TEXT
 */
import { readFileSync } from "node:fs";
import path from "node:path";
import { bannedStarts, bannedWords, insteadOf, type Kept, keptWords } from "./banned.ts";
import { textFiles, top } from "./text-files.ts";

interface Finding {
  readonly line: number;
  readonly text: string;
}

const width = 100;
/** Decisions and the changelog keep the words of their day. */
const history = /^docs\/decisions\/0|^CHANGELOG/;
/** Lines without a place to break: a long URL, a row of a table, a heading, an item's link. */
const unbreakable = /https?:\/\/\S{30}|^\s*\||^#+ |^- \[[^\]]+\]\(\S+\)[,:]$/;

/** The exceptions that a line of a file has needed. */
const needed = new Set<Kept>();

function wordsIn(text: string, file: string): readonly string[] {
  let rest = text;
  for (const kept of keptWords) {
    if (!rest.includes(kept.text) || kept.files?.includes(file) === false) continue;
    needed.add(kept);
    rest = rest.replaceAll(kept.text, "");
  }
  return rest.replaceAll(/([a-z0-9])(?=[A-Z])/g, "$1 ").match(bannedWords) ?? [];
}

/** The text of a line that is a comment; undefined for code. */
const commentOf = (line: string): string | undefined =>
  /^\s*(?:\/\/|\/\*\*?|\*(?!\))\/?|#(?!include|define|if|endif|else)) ?(.*)$/.exec(line)?.[1];

function findingsIn(file: string): readonly Finding[] {
  const found: Finding[] = [];
  const add = (line: number, text: string): void => void found.push({ line, text });
  for (const word of wordsIn(path.basename(file), file)) add(0, word);
  const markdown = file.endsWith(".md");
  const lines = readFileSync(path.join(top, file), "utf8").split("\n");
  let fenced = false;
  for (const [index, line] of lines.entries()) {
    if (markdown && /^\s*(?:- )?```/.test(line)) fenced = !fenced;
    if (!history.test(file)) for (const word of wordsIn(line, file)) add(index + 1, word);
    const comment = markdown ? undefined : commentOf(line);
    const before = index === 0 ? undefined : commentOf(lines[index - 1] ?? "");
    const begins = before === undefined || before === "" || /^\s*\/\*/.test(line);
    if (comment !== undefined && begins && bannedStarts.test(comment))
      add(index + 1, comment.slice(0, 20));
    const limited = markdown ? !fenced : comment !== undefined;
    if (limited && line.length > width && !unbreakable.test(line))
      add(index + 1, `${line.length} columns`);
  }
  return found;
}

const [part = ""] = process.argv.slice(2);
for (const file of textFiles().filter((each) => each.includes(part))) {
  for (const { line, text } of findingsIn(file)) {
    const instead = insteadOf(text);
    console.error(`${file}:${line}: ${text}${instead === undefined ? "" : ` (${instead})`}`);
    process.exitCode = 1;
  }
}
if (part === "")
  for (const kept of keptWords.filter((each) => !needed.has(each))) {
    console.error(`scripts/words/banned.ts: no file has "${kept.text}" any more`);
    process.exitCode = 1;
  }
