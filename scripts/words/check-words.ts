/**
 * Finds words of our own where the field has a term, comments that begin with a pronoun, and lines
 * of comments and Markdown above 100 columns. A file may have exactly as many as allowed.json says,
 * so that counts only fall. Prints each file that differs, and exits 1.
 *
 *   --update     writes the counts of now, unless the total rises
 *   --list TEXT  prints the findings of files whose path contains TEXT
 */
import { readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { bannedStarts, bannedWords, insteadOf } from "./banned.ts";
import { textFiles, top } from "./text-files.ts";

type Kind = "words" | "columns";
type Counts = Record<Kind, Record<string, number>>;
interface Finding {
  readonly kind: Kind;
  readonly line: number;
  readonly text: string;
}

const allowedFile = path.join(import.meta.dirname, "allowed.json");
const width = 100;
/** Decisions and the changelog keep the words of their day. */
const history = /^docs\/decisions\/0|^CHANGELOG/;
/** Lines without a place to break: a long URL, a row of a table, a heading. */
const unbreakable = /https?:\/\/\S{30}|^\s*\||^#+ /;

const wordsIn = (text: string): readonly string[] =>
  text.replaceAll(/([a-z0-9])(?=[A-Z])/g, "$1 ").match(bannedWords) ?? [];

/** The text of a line that is a comment; undefined for code. */
const commentOf = (line: string): string | undefined =>
  /^\s*(?:\/\/|\/\*\*?|\*\/?|#(?!include|define|if|endif|else)) ?(.*)$/.exec(line)?.[1];

function findingsIn(file: string): readonly Finding[] {
  const found: Finding[] = [];
  const add = (kind: Kind, line: number, text: string): void =>
    void found.push({ kind, line, text });
  for (const word of wordsIn(path.basename(file))) add("words", 0, word);
  const markdown = file.endsWith(".md");
  const lines = readFileSync(path.join(top, file), "utf8").split("\n");
  let fenced = false;
  for (const [index, line] of lines.entries()) {
    if (markdown && /^\s*(?:- )?```/.test(line)) fenced = !fenced;
    if (!history.test(file)) for (const word of wordsIn(line)) add("words", index + 1, word);
    const comment = markdown ? undefined : commentOf(line);
    const before = index === 0 ? undefined : commentOf(lines[index - 1] ?? "");
    const begins = before === undefined || before === "" || /^\s*\/\*/.test(line);
    if (comment !== undefined && begins && bannedStarts.test(comment))
      add("words", index + 1, comment.slice(0, 20));
    const limited = markdown ? !fenced : comment !== undefined;
    if (limited && line.length > width && !unbreakable.test(line))
      add("columns", index + 1, `${line.length} columns`);
  }
  return found;
}

function counted(findings: ReadonlyMap<string, readonly Finding[]>): Counts {
  const counts: Counts = { words: {}, columns: {} };
  for (const [file, found] of findings) {
    for (const { kind } of found) counts[kind][file] = (counts[kind][file] ?? 0) + 1;
  }
  return counts;
}

const total = (counts: Readonly<Record<string, number>>): number =>
  Object.values(counts).reduce((sum, count) => sum + count, 0);

const [option, part] = process.argv.slice(2);
const findings = new Map(textFiles().map((file) => [file, findingsIn(file)]));
if (option === "--list") {
  for (const [file, found] of findings) {
    if (!file.includes(part ?? "")) continue;
    for (const { line, text } of found) {
      const instead = insteadOf(text);
      console.log(`${file}:${line}: ${text}${instead === undefined ? "" : ` (${instead})`}`);
    }
  }
} else {
  const now = counted(findings);
  const allowed = JSON.parse(readFileSync(allowedFile, "utf8")) as Counts;
  let wrong = 0;
  for (const kind of ["words", "columns"] as const) {
    const rises = total(now[kind]) > total(allowed[kind]);
    if (option === "--update" && !rises) continue;
    for (const file of new Set([...Object.keys(now[kind]), ...Object.keys(allowed[kind])])) {
      const [is, may] = [now[kind][file] ?? 0, allowed[kind][file] ?? 0];
      if (is === may) continue;
      wrong++;
      console.error(`${file}: ${is} ${kind} instead of ${may}`);
    }
    console.log(`${kind}: ${total(now[kind])}, allowed ${total(allowed[kind])}`);
  }
  if (wrong > 0) {
    console.error(
      "See them: scripts/node scripts/words/check-words.ts --list FILE. Fewer, or moved: --update",
    );
    process.exitCode = 1;
  } else if (option === "--update") {
    writeFileSync(allowedFile, `${JSON.stringify(now, undefined, 2)}\n`);
    console.log(`words: ${total(now.words)}, columns: ${total(now.columns)}`);
  }
}
