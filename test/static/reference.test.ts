import { existsSync, globSync, readFileSync } from "node:fs";
import path from "node:path";
import test from "ava";
import { referencePages } from "../../scripts/reference/pages.ts";

const top = path.resolve(import.meta.dirname, "../..");

test("the pages of docs/reference that are made from the code are current", (t) => {
  for (const [page, text] of referencePages()) {
    t.true(existsSync(path.join(top, page)), `${page} is missing: run scripts/generate`);
    t.is(readFileSync(path.join(top, page), "utf8"), text, `${page}: run scripts/generate`);
  }
  // A page that nothing makes any more.
  const made = new Set(referencePages().keys());
  for (const page of globSync(["docs/reference/command-line/*.md", "man/**/*.[0-9]"], { cwd: top }))
    t.true(made.has(page), `${page} is made by nothing: remove it`);
});
