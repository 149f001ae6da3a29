import { execFile } from "node:child_process";
import { readFileSync } from "node:fs";
import path from "node:path";
import { promisify } from "node:util";
import test, { type ExecutionContext } from "ava";

const top = path.resolve(import.meta.dirname, "../..");

/** Runs a checker and fails with what it printed unless it exits 0. */
async function passes(t: ExecutionContext, program: string, ...args: string[]): Promise<void> {
  const env = { ...process.env, PATH: `${path.dirname(process.execPath)}:${process.env["PATH"]}` };
  try {
    await promisify(execFile)(path.join(top, program), args, { cwd: top, env, maxBuffer: 1 << 24 });
    t.pass();
  } catch (error) {
    const { stdout, stderr } = error as { stdout: string; stderr: string };
    t.fail(`${stdout}${stderr}`.slice(-8000));
  }
}

test("types", (t) => passes(t, "node_modules/.bin/tsc"));
test("types of the page, in a browser", (t) =>
  passes(t, "node_modules/.bin/tsc", "-p", "ui/page/tsconfig.json"));
test("lint, with types", (t) => passes(t, "node_modules/.bin/oxlint", "--type-aware"));
test("format", (t) => passes(t, "node_modules/.bin/biome", "format", "."));
test("no unused file, export or dependency", (t) =>
  passes(t, "node_modules/.bin/knip", "--no-progress"));
test("import directions", (t) => passes(t, "scripts/node", "scripts/check-imports.ts"));
test("spelling", (t) => passes(t, "scripts/node", "scripts/words/check-spelling.ts"));
test("the field's words, and lines of at most 100 columns", (t) =>
  passes(t, "scripts/node", "scripts/words/check-words.ts"));
test("commit messages", (t) => passes(t, "scripts/node", "scripts/check-commits.ts"));

test("versions are pinned exactly and the lock file names no download hosts", (t) => {
  const { dependencies, devDependencies, optionalDependencies } = JSON.parse(
    readFileSync(path.join(top, "package.json"), "utf8"),
  ) as Record<string, Record<string, string>>;
  for (const [name, version] of Object.entries({
    ...dependencies,
    ...devDependencies,
    ...optionalDependencies,
  })) {
    t.regex(version, /^\d+\.\d+\.\d+$/, name);
  }
  t.notRegex(readFileSync(path.join(top, "package-lock.json"), "utf8"), /"resolved":/);
});
