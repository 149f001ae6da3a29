/**
 * The parsed output of `iptables-save`, without interpretation: every table, chain and rule of all
 * programs.
 */

export interface SavedRule {
  readonly chain: string;
  /** The words after the chain's name, unquoted. */
  readonly args: readonly string[];
  /** The rule's text, still quoted: with `-D` it identifies this very rule. */
  readonly text: string;
}

export interface SavedTable {
  readonly name: string;
  /** Policy by chain: `ACCEPT`, `DROP`; `-` for a chain that is not built in. */
  readonly chains: ReadonlyMap<string, string>;
  /** In the order of evaluation within each chain. */
  readonly rules: readonly SavedRule[];
}

export type SavedTables = ReadonlyMap<string, SavedTable>;

interface OpenTable {
  readonly name: string;
  readonly chains: Map<string, string>;
  readonly rules: SavedRule[];
}

/**
 * Parses the output of `iptables-save` of either variant, with or without `-c`. Never throws:
 * unknown lines are skipped, because podnet only looks for its own marks and writes back only
 * single rules.
 */
export function parseSave(output: string): SavedTables {
  const tables = new Map<string, OpenTable>();
  let table: OpenTable | undefined;
  for (const line of logicalLines(output)) {
    if (line.startsWith("*")) {
      const name = line.slice(1).trim();
      table = tables.get(name) ?? { name, chains: new Map(), rules: [] };
      tables.set(name, table);
    } else if (table === undefined) {
      continue;
    } else if (line === "COMMIT") {
      table = undefined;
    } else if (line.startsWith(":")) {
      const [chain, policy] = line.slice(1).split(" ");
      if (chain !== undefined && chain !== "") table.chains.set(chain, policy ?? "-");
    } else {
      const rule = parseRule(line);
      if (rule !== undefined) table.rules.push(rule);
    }
  }
  return tables;
}

function parseRule(line: string): SavedRule | undefined {
  // With -c (and always from iptables-legacy when asked) counters stand in front: [12:3456].
  const match = /^(?:\[\d+:\d+\] )?-A (\S+)(?: ([\s\S]*))?$/.exec(line);
  if (match === null) return undefined;
  const text = match[2] ?? "";
  return { chain: match[1] as string, args: splitWords(text), text };
}

/**
 * Lines, where a line break inside quotes is part of the line: a comment may hold one, and what
 * follows it must not pass for a rule. Comments of the file itself (`# Completed on …`) are left
 * out.
 */
function logicalLines(output: string): string[] {
  const lines: string[] = [];
  let line = "";
  let quoted = false;
  for (const physical of output.split("\n")) {
    if (!quoted && physical.startsWith("#")) continue;
    line = quoted ? `${line}\n${physical}` : physical;
    quoted = endsInsideQuotes(physical, quoted);
    if (!quoted && line !== "") lines.push(line);
  }
  if (quoted) lines.push(line);
  return lines;
}

function endsInsideQuotes(text: string, quoted: boolean): boolean {
  let inside = quoted;
  for (let i = 0; i < text.length; i++) {
    if (text[i] === '"') inside = !inside;
    else if (text[i] === "\\" && inside) i++;
  }
  return inside;
}

/**
 * Splits at spaces outside of double quotes; a backslash inside quotes makes the next character
 * plain.
 */
export function splitWords(text: string): string[] {
  const words: string[] = [];
  let word: string | undefined;
  let quoted = false;
  for (let i = 0; i < text.length; i++) {
    const char = text[i] as string;
    if (char === '"') {
      quoted = !quoted;
      word ??= "";
    } else if (char === "\\" && quoted && i + 1 < text.length) {
      word = (word ?? "") + text[++i];
    } else if (char === " " && !quoted) {
      if (word !== undefined) words.push(word);
      word = undefined;
    } else {
      word = (word ?? "") + char;
    }
  }
  if (word !== undefined) words.push(word);
  return words;
}

/**
 * Joins words so that `splitWords` and `iptables-restore` read the same words again. Line breaks
 * are refused.
 */
export function joinWords(words: readonly string[]): string {
  return words.map(quoteWord).join(" ");
}

function quoteWord(word: string): string {
  // Parsers reject these characters in every word that podnet writes; this is a second check.
  if (/[\u0000-\u001f\u007f]/.test(word))
    throw new RangeError("A rule cannot hold control characters");
  if (/^[A-Za-z0-9_.,:/!=@+-]+$/.test(word)) return word;
  return `"${word.replace(/["\\]/g, "\\$&")}"`;
}
