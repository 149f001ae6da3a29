import type { JsonValue } from "@bufbuild/protobuf";
import type { Part, Path, Step } from "./parse.ts";

/**
 * The text of a template for a document. Values of one path stand in a line with blanks between
 * them; what is not there is empty. `show` makes values harmless where a terminal reads them.
 */
export function textOfTemplate(
  parts: readonly Part[],
  root: JsonValue,
  show: (text: string) => string = (text) => text,
): string {
  return parts
    .map((part) => {
      if (part.kind === "text") return part.text;
      const found = follow(part.path, [root]);
      if (part.kind === "path") return found.map((value) => show(textOf(value))).join(" ");
      return found.map((value) => textOfTemplate(part.parts, value, show)).join("");
    })
    .join("");
}

const textOf = (value: JsonValue): string =>
  typeof value === "string" ? value : value === null ? "" : JSON.stringify(value);

const follow = (path: Path, from: readonly JsonValue[]): readonly JsonValue[] =>
  path.reduce((values, step) => values.flatMap((value) => next(step, value)), from);

const listOf = (value: JsonValue | undefined): readonly JsonValue[] =>
  value === undefined ? [] : [value];

const isObject = (value: JsonValue): value is { [key: string]: JsonValue } =>
  typeof value === "object" && value !== null && !Array.isArray(value);

const children = (value: JsonValue): readonly JsonValue[] =>
  Array.isArray(value) ? value : isObject(value) ? Object.values(value) : [];

function next(step: Step, value: JsonValue): readonly JsonValue[] {
  switch (step.kind) {
    case "field":
      return isObject(value) && Object.hasOwn(value, step.name)
        ? [value[step.name] as JsonValue]
        : [];
    case "all":
      return children(value);
    case "below":
      return [value, ...children(value).flatMap((each) => next(step, each))];
    case "index":
      return Array.isArray(value) ? listOf(value.at(step.index)) : [];
    case "slice":
      return Array.isArray(value) ? value.slice(step.from, step.to) : [];
    default:
      return children(value).filter((each) => isMeant(step, each));
  }
}

/** Without a comparison a filter asks whether there is such a value. */
function isMeant({ path, is }: Extract<Step, { kind: "filter" }>, value: JsonValue): boolean {
  const found = follow(path, [value]);
  if (is === undefined) return found.length > 0;
  return found.some((each) => each === is.value) !== is.not;
}
