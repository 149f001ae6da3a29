import type { JsonObject } from "@bufbuild/protobuf";
import type { Output } from "../../io.ts";
import { harmless, type Style, styled } from "../../views/text.ts";
import type { Change, Item } from "./item.ts";

const styles: Readonly<Record<string, Style>> = {
  "+": "green",
  "-": "red",
  "~": "yellow",
  "!": "red",
};

/** Prints what is made and changed of one thing, a line for each field. */
export function printItem(out: Output, { kind, name, action, changes }: Item): void {
  out.write(`${styled(out, "bold", harmless(`${kind} ${name}`))}: ${action}\n`);
  for (const change of changes) {
    const sign = signOf(change);
    const { field, was, becomes, refused } = change;
    const values = was === "" ? becomes : becomes === "" ? was : `${was} → ${becomes}`;
    const why = refused === undefined ? "" : ` (${refused})`;
    out.write(
      `  ${styled(out, styles[sign] ?? "dim", sign)} ${harmless(`${field}: ${values}${why}`)}\n`,
    );
  }
}

const signOf = ({ was, becomes, refused }: Change): string =>
  refused !== undefined ? "!" : was === "" ? "+" : becomes === "" ? "-" : "~";

/** As `printItem`, for programs. */
export const plainItem = ({ kind, name, action, changes }: Item): JsonObject => ({
  kind,
  name,
  action,
  changes: changes.map(({ field, was, becomes, refused = "" }) => ({
    field,
    was,
    becomes,
    refused,
  })),
});
