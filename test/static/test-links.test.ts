import { existsSync, readFileSync } from "node:fs";
import path from "node:path";
import test from "ava";

const docs = path.resolve(import.meta.dirname, "../../docs");
/** Everything these promise is held by a test they link to: `[title of the test](../test/FILE.test.ts)`. */
const pages = ["promises.md", "threat-model.md"];
const testLink = /\[([^\]]+)\]\((\.\.\/(?:test|scripts)\/[^)]+)\)/g;

/** A title as it may stand in the source: whole, or up to what a template string fills in. */
function standsIn(title: string, source: string): boolean {
  const written = title.replaceAll("\\|", "|");
  return written.split("…").every((part) => source.includes(part.trim()));
}

for (const page of pages) {
  test(`every test that ${page} names is there`, (t) => {
    const text = readFileSync(path.join(docs, page), "utf8");
    const links = [...text.matchAll(testLink)];
    t.true(links.length > 10);
    for (const [, title, target] of links as unknown as [string, string, string][]) {
      const file = path.join(docs, target);
      t.true(existsSync(file), `${target} is not there`);
      if (target.endsWith(".test.ts") && existsSync(file))
        t.true(standsIn(title, readFileSync(file, "utf8")), `${target} has no test "${title}"`);
    }
  });

  test(`every row of ${page} links to a test`, (t) => {
    const text = readFileSync(path.join(docs, page), "utf8");
    // What is trusted, and what is not promised or not defended against, has nothing to show.
    const sections = text
      .split("\n## ")
      .filter((section) => !/^(?:Who is trusted|Not )/.test(section));
    const rows = sections.flatMap((section) =>
      section.split("\n").filter((line) => /^\| (?!#|what )/.test(line)),
    );
    t.true(rows.length > 5);
    for (const row of rows) t.regex(row, /\]\(\.\.\/(?:test|scripts)\//, row);
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
