import { globSync, readFileSync } from "node:fs";
import path from "node:path";
import test from "ava";
import { errorCodes } from "../../core/errors.ts";

// That each code stands in docs/reference/errors.md is tested alongside the page's other promises,
// in api-codes.test.ts.

const top = path.resolve(import.meta.dirname, "../..");
const read = (file: string): string => readFileSync(path.join(top, file), "utf8");

/** Code without what only asks for a code: `isPodnetError(e, "X")`, `code === "X"`. */
const withoutQuestions = (text: string): string =>
  text.replaceAll(/isPodnetError\([^)]*\)|[!=]==?\s*"[A-Z_]+"/g, "");
/** A test without the errors it makes itself, and without comments. */
const withoutOwnErrors = (text: string): string =>
  text.replaceAll(/new PodnetError\(\s*"[A-Z_]+"|^\s*(?:\/\/|\/?\*).*$/gm, "");

/** Every source a user runs, but for the list of codes and the tables that map them. */
const sources = globSync(
  "{core,ipallocator,policy,relay,linux,network,hypervisor,guest-init,images,api,etcd,kubernetes,overlay,daemon,cli}/**/*.ts",
  {
    cwd: top,
    exclude: ["api/gen/**", "etcd/gen/**", "core/errors.ts", "api/codes.ts", "cli/exit-codes.ts"],
  },
)
  .map(read)
  .map(withoutQuestions)
  .join("\n");

/** Tests of the real thing: one that plays the daemon asserts the errors it made up. */
const tests = globSync("test/**/*.test.ts", { cwd: top })
  .filter((file) => !file.startsWith("test/static/"))
  .map(read)
  .filter(
    (text) => !/from ".*(?:cli\/fixtures\/daemon|api\/fixtures\/wire-service)\.ts"/.test(text),
  )
  .map(withoutOwnErrors)
  .join("\n");

for (const code of errorCodes) {
  test(`${code} is thrown somewhere, and a test makes it happen`, (t) => {
    t.true(sources.includes(`"${code}"`), "Nothing throws it: take it out of core/errors.ts");
    t.true(new RegExp(`\\b${code}\\b`).test(tests), "No test of the real thing expects it");
  });
}
