import * as z from "zod";
import { invalid } from "../../../api/fields.ts";
import { PodnetError } from "../../../core/errors.ts";
import { printable } from "../../../core/names.ts";
import { hasLabel } from "../../images/has-label.ts";
import type { StoredImageRow } from "../../images/images.ts";
import { readGo } from "./go-json.ts";

/** What of images is asked for: a pattern of names, and docker's filters as JSON. */
interface AskedImages {
  readonly filter: string;
  readonly filters: string;
}

type Image = Pick<StoredImageRow, "names" | "config">;

/**
 * Whether an image is asked for: by a pattern of its repository, and by docker's filters `label`
 * and `dangling`. Throws `INVALID_ARGUMENT`, and `UNSUPPORTED` for another filter. Pure.
 */
export function imageFilter(
  { filter, filters }: AskedImages,
  field: string,
): (image: Image) => boolean {
  const { label = [], dangling = [], ...others } = readFilters(filters, field);
  const [other] = Object.keys(others);
  if (other !== undefined)
    throw new PodnetError("UNSUPPORTED", `podnet does not filter images by ${printable(other)}`, {
      field,
      hint: "Use label or dangling",
    });
  const wrong = dangling.find((each) => !["true", "false", "1", "0"].includes(each));
  if (wrong !== undefined)
    throw invalid(field, `"${printable(wrong)}" is neither true nor false`, "Write true or false");
  const wantsDangling = dangling.map((each) => each === "true" || each === "1");
  const isNamed = patternOf(filter);
  return ({ names, config }) =>
    isNamed(names) &&
    label.every((each) => hasLabel(config.labels, each)) &&
    wantsDangling.every((wanted) => wanted === (names.length === 0));
}

/** As docker's clients write filters: lists, or objects whose keys are the values. */
function readFilters(filters: string, field: string): Readonly<Record<string, readonly string[]>> {
  if (["", "null"].includes(filters)) return {};
  const value = z.union([z.array(z.string()), z.record(z.string(), z.boolean())]);
  const read = readGo(z.record(z.string(), value), filters, field);
  return Object.fromEntries(
    Object.entries(read).map(([name, values]) => [
      name,
      Array.isArray(values) ? values : Object.keys(values),
    ]),
  );
}

/** A shell's pattern of a repository, with its registry or as docker shortens it. */
function patternOf(filter: string): (names: readonly string[]) => boolean {
  if (filter === "") return () => true;
  if (/[[\]\\{}]/.test(filter))
    throw new PodnetError("UNSUPPORTED", "podnet knows * and ? alone in a pattern of names", {
      field: "filter",
      hint: "Write the name, with * and ?",
    });
  return (names) => names.flatMap(repositoriesOf).some((name) => fits(name, filter));
}

/** Whether a name fits a pattern, of which * and ? pass over no slash. In time of their product. */
function fits(name: string, pattern: string): boolean {
  // At which places of the name the part of the pattern so far may end.
  let ends = new Set([0]);
  for (const char of pattern) {
    const next = new Set<number>();
    for (const at of ends) {
      if (char === "*")
        for (let i = at; i <= name.length; i++) {
          next.add(i);
          if (name[i] === "/") break;
        }
      else if (char === "?" ? at < name.length && name[at] !== "/" : name[at] === char)
        next.add(at + 1);
    }
    ends = next;
  }
  return ends.has(name.length);
}

/** The ways to write an image's repository, with and without its tag. */
function repositoriesOf(name: string): readonly string[] {
  const whole = name.replace(/@.*$/, "");
  const short = whole.replace(/^docker\.io\/(?:library\/)?/, "");
  return [whole, short].flatMap((each) => [each, each.replace(/:[^/:]*$/, "")]);
}
