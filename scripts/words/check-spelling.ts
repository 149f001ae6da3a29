/**
 * Checks the spelling of each word in our text once, with cspell and the names in dictionary.txt:
 * a run over all files takes 15 s of CPU time, one over their different words 4. Prints each unknown
 * word with the place where it stands first, and exits 1. `--update` adds the words to the dictionary.
 */
import { execFileSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { textFiles, top } from "./text-files.ts";

const dictionary = path.join(import.meta.dirname, "dictionary.txt");
/** What is no text: URLs, hashes and other data in hexadecimal or base64, and escapes. */
const noText =
  /0x[0-9a-fA-F]+n?|https?:\/\/[^\s)]+|\b(?=\w*\d)[0-9a-fA-F]{6,}\b|[A-Za-z0-9+/]{40,}=*|\\(?:x[0-9a-f]{2}|u[0-9a-f]{4}|[nrtbfve0])/g;

/** Where each word stands first, as `file:line`. */
function firstPlaces(): ReadonlyMap<string, string> {
  const places = new Map<string, string>();
  for (const file of textFiles()) {
    const lines = readFileSync(path.join(top, file), "utf8").split("\n");
    for (const [index, line] of lines.entries()) {
      for (const [word] of line.replaceAll(noText, " ").matchAll(/[\p{L}][\p{L}\p{M}'’]*\p{L}/gu)) {
        if (word.length > 3 && !places.has(word)) places.set(word, `${file}:${index + 1}`);
      }
    }
  }
  return places;
}

/** The words that cspell does not know. It splits camelCase, and names the unknown parts. */
function unknownIn(words: Iterable<string>): readonly (readonly [line: number, word: string])[] {
  const args = ["lint", "--no-progress", "--no-summary", "--no-color", "--config", "cspell.json"];
  try {
    execFileSync(process.execPath, ["node_modules/cspell/bin.mjs", ...args, "stdin"], {
      cwd: top,
      input: [...words].join("\n"),
      stdio: ["pipe", "pipe", "pipe"],
      encoding: "utf8",
      maxBuffer: 1 << 26,
    });
    return [];
  } catch (error) {
    const { stdout = "", stderr = "" } = error as { stdout?: string; stderr?: string };
    const found = [...stdout.matchAll(/:(\d+):\d+ - Unknown word \((.+?)\)/g)];
    if (found.length === 0) throw new Error(`cspell failed: ${stdout}${stderr}`, { cause: error });
    return found.map(([, line, word]) => [Number(line), word ?? ""]);
  }
}

const places = firstPlaces();
const words = [...places.keys()];
const unknown = new Map(unknownIn(words).map(([line, word]) => [word, words[line - 1] ?? ""]));
if (process.argv[2] === "--update") {
  const known = readFileSync(dictionary, "utf8").split("\n");
  const all = new Set([...known, ...[...unknown.keys()].map((word) => word.toLowerCase())]);
  writeFileSync(
    dictionary,
    `${[...all]
      .filter((word) => word !== "")
      .sort()
      .join("\n")}\n`,
  );
} else if (unknown.size > 0) {
  for (const [word, within] of unknown) console.error(`${places.get(within)}: ${word}`);
  console.error("Names that are right: scripts/node scripts/words/check-spelling.ts --update");
  process.exitCode = 1;
}
console.log(`${words.length} words, ${unknown.size} unknown`);
