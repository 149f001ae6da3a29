import type { JsonValue } from "@bufbuild/protobuf";
import { usage } from "../usage.ts";
import type { Part, Path, Step } from "./parse.ts";

/** Most values that a template may pass: `..` several times in a row has no other bound. */
const mostValues = 1_000_000;

/**
 * The text of a template for a document. Values of one path stand in a line with blanks between
 * them; what is not there is empty. `show` makes values harmless where a terminal reads them.
 * Throws `INVALID_ARGUMENT` for a template that passes more values than `mostValues`.
 */
export const textOfTemplate = (
  parts: readonly Part[],
  root: JsonValue,
  show: (text: string) => string = (text) => text,
): string => new Printer(show).text(parts, root);

class Printer {
  readonly #show: (text: string) => string;
  #passed = 0;

  constructor(show: (text: string) => string) {
    this.#show = show;
  }

  text(parts: readonly Part[], root: JsonValue): string {
    return parts
      .map((part) => {
        if (part.kind === "text") return part.text;
        const found = this.#follow(part.path, [root]);
        if (part.kind === "path") return found.map((each) => this.#show(textOf(each))).join(" ");
        return found.map((value) => this.text(part.parts, value)).join("");
      })
      .join("");
  }

  #follow(path: Path, from: readonly JsonValue[]): readonly JsonValue[] {
    return path.reduce((values, step) => values.flatMap((each) => this.#next(step, each)), from);
  }

  #next(step: Step, value: JsonValue): readonly JsonValue[] {
    if (++this.#passed > mostValues) throw tooMany();
    switch (step.kind) {
      case "field":
        return isObject(value) && Object.hasOwn(value, step.name)
          ? [value[step.name] as JsonValue]
          : [];
      case "all":
        return children(value);
      case "below":
        return [value, ...children(value).flatMap((each) => this.#next(step, each))];
      case "index":
        return Array.isArray(value) ? listOf(value.at(step.index)) : [];
      case "slice":
        return Array.isArray(value) ? value.slice(step.from, step.to) : [];
      default:
        return children(value).filter((each) => this.#isMeant(step, each));
    }
  }

  /** Without a comparison a filter asks whether there is such a value. */
  #isMeant({ path, is }: Extract<Step, { kind: "filter" }>, value: JsonValue): boolean {
    const found = this.#follow(path, [value]);
    if (is === undefined) return found.length > 0;
    return found.some((each) => each === is.value) !== is.not;
  }
}

const tooMany = (): Error =>
  usage(
    `The jsonpath template passes more than ${mostValues} values`,
    "Name fields in the place of .. where you can",
    "--output",
  );

const textOf = (value: JsonValue): string =>
  typeof value === "string" ? value : value === null ? "" : JSON.stringify(value);

const listOf = (value: JsonValue | undefined): readonly JsonValue[] =>
  value === undefined ? [] : [value];

const isObject = (value: JsonValue): value is { [key: string]: JsonValue } =>
  typeof value === "object" && value !== null && !Array.isArray(value);

const children = (value: JsonValue): readonly JsonValue[] =>
  Array.isArray(value) ? value : isObject(value) ? Object.values(value) : [];
