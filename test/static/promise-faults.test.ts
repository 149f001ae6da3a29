import { readFileSync } from "node:fs";
import path from "node:path";
import test from "ava";
import { faults } from "../planted/faults.ts";
import { uncovered } from "../planted/uncovered.ts";

const top = path.resolve(import.meta.dirname, "../..");
const promises = readFileSync(path.join(top, "docs/promises.md"), "utf8");
const testLink = /\[([^\]]+)\]\(\.\.\/((?:test|scripts)\/[^)]+)\)/g;

/** As many as there were when the list was begun: it may only become shorter. */
const mostUncovered = 1;

interface Promised {
  readonly number: string;
  readonly tests: readonly { readonly title: RegExp; readonly file: string }[];
}

/**
 * The titles that a link may mean: `…` stands for what a template string fills in; a long test
 * comes in parts, `(1 of 3)`.
 */
function titlesOf(text: string): RegExp {
  const parts = text.split("…").map((part) => part.replaceAll(/[^\w\s]/g, "\\$&"));
  return new RegExp(`^${parts.join(".+")}(?: \\(\\d of \\d\\))?$`, "s");
}

/** The rows of the page that promise something. */
const promised: readonly Promised[] = (promises.split("\n## Not yet")[0] ?? "")
  .split("\n")
  .flatMap((line) => {
    const [, number] = /^\| ([A-Z]?\d+[a-z]?) \|/.exec(line) ?? [];
    if (number === undefined) return [];
    const tests = [...line.matchAll(testLink)].map(([, title = "", file = ""]) => ({
      title: titlesOf(title),
      file,
    }));
    return [{ number, tests }];
  });

const isCovered = ({ tests }: Promised): boolean =>
  faults.some(({ noticedBy }) =>
    tests.some(({ title, file }) => file === noticedBy.file && title.test(noticedBy.title)),
  );

test("each promise has a planted fault that one of its linked tests notices", (t) => {
  t.true(promised.length > 60);
  const without = promised.filter((each) => !isCovered(each)).map(({ number }) => number);
  t.deepEqual(
    without.filter((number) => uncovered[number] === undefined),
    [],
    "plant a fault in test/planted/faults that a linked test notices",
  );
  t.deepEqual(
    Object.keys(uncovered).filter((number) => !without.includes(number)),
    [],
    "these have one by now: take them out of test/planted/uncovered.ts",
  );
  t.true(Object.keys(uncovered).length <= mostUncovered);
});

test("a promise without a planted fault says why", (t) => {
  for (const [number, why] of Object.entries(uncovered)) t.true(why.length > 20, number);
});

/** Every literal of a file as the titles that it may be: a template string's `${…}` is anything. */
function literalsOf(file: string): readonly RegExp[] {
  const text = readFileSync(path.join(top, file), "utf8");
  const literals = [...text.matchAll(/"((?:[^"\\\n]|\\.)*)"|`((?:[^`\\]|\\.)*)`/gs)];
  return literals
    .map(([, plain, template]) => plain ?? template ?? "")
    .filter((literal) => literal.length > 8)
    .map((literal) => {
      const parts = literal.replaceAll('\\"', '"').split(/\$\{(?:[^{}]|\{[^{}]*\})*\}/);
      return new RegExp(
        `^${parts.map((part) => part.replaceAll(/[^\w\s]/g, "\\$&")).join(".+")}$`,
        "s",
      );
    });
}

test("each planted fault names a test that is there", (t) => {
  const files = new Map<string, readonly RegExp[]>();
  const missing = faults.filter(({ noticedBy: { file, title } }) => {
    const literals = files.get(file) ?? literalsOf(file);
    files.set(file, literals);
    return !literals.some((literal) => literal.test(title));
  });
  t.deepEqual(
    missing.map(({ name, noticedBy }) => `${name}: ${noticedBy.file}: ${noticedBy.title}`),
    [],
  );
});
