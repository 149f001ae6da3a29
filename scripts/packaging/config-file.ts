import { assertNever } from "../../core/brand.ts";
import { type ConfigKey, configKeys } from "../../daemon/config/schema.ts";
import { defaultOf, typeOf } from "../reference/configuration.ts";

/** Longest line of the file, characters. */
const width = 90;

function wrapped(text: string): string[] {
  const lines: string[] = [];
  let line = "#";
  for (const word of text.split(" ")) {
    if (line.length + 1 + word.length > width && line !== "#") {
      lines.push(line);
      line = "#";
    }
    line += ` ${word}`;
  }
  return [...lines, line];
}

/** A value that stands for a key without a default, so that the line can be uncommented. */
function example({ kind, choices }: ConfigKey): string {
  switch (kind) {
    case "boolean":
      return "false";
    case "integer":
      return "0";
    case "list":
      return "[]";
    case "choice":
      return JSON.stringify(choices[0]);
    case "text":
      return '""';
    default:
      return assertNever(kind);
  }
}

/**
 * podnetd's configuration file as a package installs it: every key of the schema with its meaning
 * and its default, commented. TOML.
 */
export function commentedConfig(): string {
  const tables = Map.groupBy(configKeys, ({ key }) => key.slice(0, key.lastIndexOf(".") + 1));
  const sections = [...tables].map(([prefix, keys]) => {
    const lines = keys.flatMap((each) => {
      const { value, words } = defaultOf(each);
      const type = typeOf(each).replaceAll("`", "");
      const about = [
        `${each.help}.`,
        `(${type}${value === undefined ? `; default: ${words}` : ""})`,
      ];
      const name = each.key.slice(prefix.length);
      const written = value === undefined ? example(each) : JSON.stringify(value);
      return [...wrapped(about.join(" ").replaceAll("`", "")), `#${name} = ${written}`, ""];
    });
    return [...(prefix === "" ? [] : [`[${prefix.slice(0, -1)}]`]), ...lines].join("\n");
  });
  return [
    "# Configuration of podnetd. Every key is here with its default; remove the # to change it.",
    "# `podnetd config --resolved` prints the value of each key and where it comes from.",
    "# podnetd reads this file at its start: systemctl restart podnetd",
    "",
    sections.join("\n"),
  ].join("\n");
}
