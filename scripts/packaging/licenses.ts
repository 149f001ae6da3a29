import { globSync, readFileSync } from "node:fs";
import path from "node:path";

const modules = path.resolve(import.meta.dirname, "../../node_modules");

/** Licenses of npm packages that are part of what is released, one after the other. */
export function licensesOf(packages: Iterable<string>): string {
  return [...packages]
    .toSorted()
    .map((name) => {
      const directory = path.join(modules, name);
      const { version, license } = JSON.parse(
        readFileSync(path.join(directory, "package.json"), "utf8"),
      ) as { version: string; license?: string };
      const [file] = globSync("{LICENSE,LICENCE,License,license}*", { cwd: directory });
      const text =
        file === undefined ? "" : readFileSync(path.join(directory, file), "utf8").trim();
      return `\n--- ${name} ${version} (${license ?? "see below"})\n\n${text}\n`;
    })
    .join("");
}
