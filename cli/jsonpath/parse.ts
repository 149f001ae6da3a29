import { printable } from "../../core/names.ts";
import { usage } from "../usage.ts";

/** How a path goes on from the values it has reached. */
export type Step =
  | { readonly kind: "field"; readonly name: string }
  | { readonly kind: "all" }
  /** Every value below, each of which the next step is tried on. */
  | { readonly kind: "below" }
  | { readonly kind: "index"; readonly index: number }
  | { readonly kind: "slice"; readonly from: number | undefined; readonly to: number | undefined }
  | { readonly kind: "filter"; readonly path: Path; readonly is?: Comparison };

export type Path = readonly Step[];

interface Comparison {
  readonly not: boolean;
  readonly value: string | number | boolean;
}

/** A part of a template. */
export type Part =
  | { readonly kind: "text"; readonly text: string }
  | { readonly kind: "path"; readonly path: Path }
  | { readonly kind: "range"; readonly path: Path; readonly parts: readonly Part[] };

/** Longer than any that people write; nested parts are read and printed by recursion. */
const longest = 4096;

const hint = "Write paths in braces, such as {.items[*].name}: docs/reference/jsonpath.md";

/**
 * Reads a template of kubectl's JSONPath: text with `{.path}`, `{"text"}` and
 * `{range .path}…{end}`. Throws `INVALID_ARGUMENT`.
 */
export function parseTemplate(template: string): readonly Part[] {
  if (template.length > longest)
    throw usage(
      `The jsonpath template has ${template.length} characters`,
      `At most ${longest} are read; print -o json and choose from it with a program`,
      "--output",
    );
  if (!template.includes("{")) throw wrong(template, "has no {path}");
  const open: { path: Path; parts: Part[] }[] = [{ path: [], parts: [] }];
  const put = (part: Part): void => void open.at(-1)?.parts.push(part);
  for (let at = 0; at < template.length; ) {
    if (template[at] !== "{") {
      const end = template.indexOf("{", at);
      const text = template.slice(at, end < 0 ? undefined : end);
      put({ kind: "text", text });
      at += text.length;
      continue;
    }
    const reader = new Reader(template, at + 1);
    const word = reader.word();
    if (word === "range") open.push({ path: reader.path(), parts: [] });
    else if (word === "end") {
      const done = open.length > 1 ? open.pop() : undefined;
      if (done === undefined) throw wrong(template, "has an {end} without a {range}");
      put({ kind: "range", ...done });
    } else if (reader.isQuote()) put({ kind: "text", text: reader.quoted() });
    else put({ kind: "path", path: reader.path() });
    at = reader.close();
  }
  if (open.length > 1) throw wrong(template, "has a {range} without its {end}");
  return open[0]?.parts ?? [];
}

const wrong = (template: string, what: string): Error =>
  usage(`jsonpath "${printable(template)}" ${what}`, hint, "--output");

const escapes: Readonly<Record<string, string>> = { n: "\n", t: "\t", r: "\r" };

/** Reads what stands in one pair of braces. */
class Reader {
  readonly #text: string;
  #at: number;

  constructor(text: string, at: number) {
    this.#text = text;
    this.#at = at;
  }

  /** `range` or `end`; undefined for all else. */
  word(): string | undefined {
    const word = this.#take(/\s*(range(?=[\s.[$@])|end(?=\s*\}))/y)?.[1];
    return word;
  }

  isQuote(): boolean {
    this.#take(/\s*/y);
    return /["']/.test(this.#text[this.#at] ?? "");
  }

  /** A text in quotes, with `\n` and `\t`. */
  quoted(): string {
    const [, inner = ""] =
      this.#take(/"((?:[^"\\]|\\[^])*)"|'((?:[^'\\]|\\[^])*)'/y)?.filter(
        (each) => each !== undefined,
      ) ?? this.#fail("has a quote without its end");
    return inner.replaceAll(/\\([^])/g, (_, one: string) => escapes[one] ?? one);
  }

  path(): Path {
    this.#take(/\s*[$@]?/y);
    const steps: Step[] = [];
    for (;;) {
      const step = this.#step();
      if (step === undefined) return steps;
      steps.push(...step);
    }
  }

  /** The end of the braces; returns where the text goes on. */
  close(): number {
    if (this.#take(/\s*\}/y) === null)
      this.#fail(`cannot be read at "${this.#text.slice(this.#at, this.#at + 12)}"`);
    return this.#at;
  }

  #step(): readonly Step[] | undefined {
    if (this.#take(/\.\./y) !== null) {
      const next = this.#name() ?? (this.#text[this.#at] === "[" ? undefined : this.#fail(noName));
      return [{ kind: "below" }, ...(next === undefined ? [] : [next])];
    }
    if (this.#take(/\./y) !== null) {
      const name = this.#name();
      if (name !== undefined) return [name];
      // `{.}` is the whole; `.[0]` is `[0]`.
      return /[\s}[)]/.test(this.#text[this.#at] ?? "") ? [] : this.#fail(noName);
    }
    return this.#take(/\[/y) === null ? undefined : [this.#bracket()];
  }

  #name(): Step | undefined {
    if (this.#take(/\*/y) !== null) return { kind: "all" };
    const name = this.#take(/(?:\\[^]|[^\s.[\]{}()*\\"'=!])+/y)?.[0];
    return name === undefined
      ? undefined
      : { kind: "field", name: name.replaceAll(/\\([^])/g, "$1") };
  }

  #bracket(): Step {
    const step = this.#inBrackets();
    if (this.#take(/\s*\]/y) === null) this.#fail("has a [ without its ]");
    return step;
  }

  #inBrackets(): Step {
    if (this.#take(/\s*\*/y) !== null) return { kind: "all" };
    if (this.#take(/\s*\?\(/y) !== null) return this.#filter();
    const slice = this.#take(/\s*(-?\d{1,9})?\s*:\s*(-?\d{1,9})?/y);
    if (slice !== null) return { kind: "slice", from: numberOf(slice[1]), to: numberOf(slice[2]) };
    const index = numberOf(this.#take(/\s*(-?\d{1,9})/y)?.[1]);
    if (index !== undefined) return { kind: "index", index };
    if (this.isQuote()) return { kind: "field", name: this.quoted() };
    return this.#fail("has brackets without a number, * or a quoted name");
  }

  #filter(): Step {
    const path = this.path();
    const compared = this.#take(/\s*(==|!=)\s*/y)?.[1];
    const is =
      compared === undefined ? {} : { is: { not: compared === "!=", value: this.#value() } };
    if (this.#take(/\s*\)/y) === null) this.#fail('has a filter that is not [?(@.field=="value")]');
    return { kind: "filter", path, ...is };
  }

  #value(): string | number | boolean {
    if (this.isQuote()) return this.quoted();
    const word = this.#take(/true|false|-?\d{1,15}(?:\.\d{1,15})?/y)?.[0];
    if (word === undefined)
      return this.#fail("compares with no number, true, false or quoted text");
    return word === "true" ? true : word === "false" ? false : Number(word);
  }

  #take(pattern: RegExp): RegExpExecArray | null {
    pattern.lastIndex = this.#at;
    const found = pattern.exec(this.#text);
    if (found !== null) this.#at += found[0].length;
    return found;
  }

  #fail(what: string): never {
    throw wrong(this.#text, what);
  }
}

const noName = "has a dot without a name";

const numberOf = (digits: string | undefined): number | undefined =>
  digits === undefined ? undefined : Number(digits);
