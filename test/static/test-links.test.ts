import { existsSync, globSync, readFileSync } from "node:fs";
import path from "node:path";
import test from "ava";

const docs = path.resolve(import.meta.dirname, "../../docs");
/**
 * Everything these promise is held by a test they link to:
 * `[title of the test](../test/FILE.test.ts)`.
 */
const pages = ["promises.md", "explanation/threat-model.md"];
const testLink = /\[([^\]]+)\]\(((?:\.\.\/)+(?:test|scripts)\/[^)]+)\)/g;

/**
 * What a title is written with in its source, as one literal: `…` stands for what a template string
 * fills in.
 */
function literal(title: string): RegExp {
  const parts = title
    .replaceAll("\\|", "|")
    .split("…")
    .map((part) => part.replaceAll(/[^\w\s]/g, "\\$&").replaceAll('\\"', '\\\\?"'));
  return new RegExp(`(["\`])${parts.join("\\$\\{[^\\n]*?\\}")}\\1`);
}

const byName = (a: string, b: string): number => (a < b ? -1 : 1);

/** So little of a title would be found anywhere. */
const leastLetters = 12;
const letters = (title: string): number => title.match(/\p{L}/gu)?.length ?? 0;

test("a title is found as one literal, in its order, and nowhere else", (t) => {
  const source = [
    'test("one two three four", (t) => {});',
    "test(`of ${kinds[i]}: reported (${n}) of`, (t) => {});",
  ].join("\n");
  for (const title of ["one two three four", "of …: reported (…) of"])
    t.regex(source, literal(title), title);
  for (const title of [
    "one two three",
    "two three four",
    "one … four",
    "three two",
    "of …: reported",
    "of kinds: reported (…) of",
  ])
    t.notRegex(source, literal(title), title);
});

for (const file of pages) {
  const page = path.basename(file);
  const text = readFileSync(path.join(docs, file), "utf8");

  test(`every test that ${page} names is there`, (t) => {
    const links = [...text.matchAll(testLink)] as unknown as [string, string, string][];
    t.true(links.length > 10);
    const wrong = links.flatMap(([, title, target]) => {
      const source = path.join(docs, path.dirname(file), target);
      if (!existsSync(source)) return [`${target} is not there`];
      if (!target.endsWith(".test.ts")) return [];
      if (letters(title) < leastLetters) return [`"${title}" says too little`];
      return literal(title).test(readFileSync(source, "utf8")) ? [] : [`${target}: no "${title}"`];
    });
    t.deepEqual(wrong, []);
  });

  test(`every row of ${page} links to a test`, (t) => {
    // What is trusted, and what is not promised or not defended against, has nothing to show.
    const sections = text
      .split("\n## ")
      .filter((section) => !/^(?:Who is trusted|Not )/.test(section));
    const rows = sections.flatMap((section) =>
      section.split("\n").filter((line) => /^\| (?!#|what )/.test(line)),
    );
    t.true(rows.length > 5);
    for (const row of rows) {
      t.regex(row, /\]\((?:\.\.\/)+(?:test|scripts)\//, row);
      // A row without a figure has a dash.
      t.notRegex(row, /\|\s*\|/, `an empty column: ${row}`);
    }
  });

  test(`nothing in ${page} is still to be filled in`, (t) => {
    t.deepEqual(text.match(/\b(?:FIG|TEST|TODO|XXX)[-A-Z0-9]*\b/g), null);
  });
}

test("the promises are all there, each once", (t) => {
  const text = readFileSync(path.join(docs, "promises.md"), "utf8");
  const numbers = [...text.matchAll(/^\| (\d+) \|/gm)].map(([, number]) => Number(number));
  t.deepEqual(
    numbers.toSorted((a, b) => a - b),
    Array.from({ length: 36 }, (_, index) => index + 1),
  );
});

test("the README names each test that a short run skips, and no other", (t) => {
  const top = path.resolve(docs, "..");
  const readme = readFileSync(path.join(top, "README.md"), "utf8");
  const [, section = ""] = /^## Skipped tests\n(.*?)^## /ms.exec(readme) ?? [];
  const links = [...section.matchAll(/^- \[([^\]]+)\]\(([^)]+)\)(?:,\s+by [\w-]+)?:\s+\S/gm)];
  t.is(links.length, [...section.matchAll(/^- /gm)].length);
  for (const [, title = "", file = ""] of links)
    t.regex(readFileSync(path.join(top, file), "utf8"), literal(title), file);
  const skipping = globSync("test/**/*.test.ts", { cwd: top }).filter(
    (file) =>
      !/^test\/(?:fixtures|static)\//.test(file) &&
      /\btest(?:\.serial)?\.skip\b/.test(readFileSync(path.join(top, file), "utf8")),
  );
  const named = new Set(links.map(([, , file = ""]) => file));
  t.deepEqual([...named].toSorted(byName), skipping.toSorted(byName));
});

test("no test passes in place of being skipped", (t) => {
  const top = path.resolve(docs, "..");
  const wrong = globSync("test/**/*.test.ts", { cwd: top }).filter((file) =>
    /\bt\.pass\([^)]*\);\s*return;/.test(readFileSync(path.join(top, file), "utf8")),
  );
  t.deepEqual(wrong, []);
});
