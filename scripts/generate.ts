import { spawnSync } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";

/** Makes `api/gen` from `api/**\/*.proto`; with `--check`, makes it aside and compares. */

const root = resolve(import.meta.dirname, "..");
const gen = join(root, "api/gen");
// protoc-gen-es is a script that must run on our Node, whatever the machine has.
const env = { ...process.env, PATH: `${dirname(process.execPath)}:${process.env["PATH"] ?? ""}` };

function buf(...args: string[]): void {
  const done = spawnSync(join(root, "node_modules/.bin/buf"), args, {
    cwd: root,
    env,
    stdio: "inherit",
  });
  if (done.status !== 0) process.exit(done.status ?? 1);
}

/** Every file below a folder with its text, by relative path. */
function contents(folder: string): Map<string, string> {
  const files = readdirSync(folder, { recursive: true, encoding: "utf8" })
    .filter((name) => name.endsWith(".ts"))
    .toSorted();
  return new Map(files.map((name) => [name, readFileSync(join(folder, name), "utf8")]));
}

function generate(into: string): void {
  // The output folder of buf.gen.yaml is relative to -o.
  buf("generate", "-o", into);
}

function check(): boolean {
  const aside = mkdtempSync(join(tmpdir(), "podnet-generate-"));
  try {
    generate(aside);
    const made = contents(join(aside, "api/gen"));
    const kept = contents(gen);
    const stale = [...new Set([...made.keys(), ...kept.keys()])].filter(
      (name) => made.get(name) !== kept.get(name),
    );
    for (const name of stale) console.error(`api/gen/${name} is not current`);
    return stale.length === 0;
  } finally {
    rmSync(aside, { recursive: true, force: true });
  }
}

if (process.argv.includes("--check")) {
  buf("lint");
  if (!check()) {
    console.error("Run scripts/generate and commit api/gen");
    process.exitCode = 1;
  }
} else {
  rmSync(gen, { recursive: true, force: true });
  generate(root);
}
