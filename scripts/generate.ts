import { spawnSync } from "node:child_process";
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { referencePages } from "./reference/pages.ts";

/**
 * Makes `api/gen` and its like from their .proto files, and the pages of docs/reference that are
 * made from the code; with `--check`, makes them aside and compares.
 */

const root = resolve(import.meta.dirname, "..");
/** What is made, from which module, as which template says. */
const outputs = [
  { gen: "api/gen", module: "api", template: "buf.gen.yaml" },
  { gen: "etcd/gen", module: "etcd/proto", template: "buf.gen.etcd.yaml" },
  { gen: "daemon/cri/gen", module: "daemon/cri/proto", template: "buf.gen.cri.yaml" },
  { gen: "daemon/hyperd/gen", module: "daemon/hyperd/proto", template: "buf.gen.hyperd.yaml" },
] as const;
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
  // The output folders of the templates are relative to -o.
  for (const { module, template } of outputs)
    buf("generate", "--template", template, "-o", into, module);
}

/** Files of one output that are not what its .proto files make. */
function stale(aside: string, gen: string): string[] {
  const made = contents(join(aside, gen));
  const kept = contents(join(root, gen));
  return [...new Set([...made.keys(), ...kept.keys()])]
    .filter((name) => made.get(name) !== kept.get(name))
    .map((name) => `${gen}/${name}`);
}

/** Pages that are not what the code makes of them. */
function stalePages(): string[] {
  const read = (page: string): string =>
    existsSync(join(root, page)) ? readFileSync(join(root, page), "utf8") : "";
  return [...referencePages()].flatMap(([page, text]) => (read(page) === text ? [] : [page]));
}

function writePages(): void {
  for (const [page, text] of referencePages()) {
    mkdirSync(dirname(join(root, page)), { recursive: true });
    writeFileSync(join(root, page), text);
  }
}

function check(): boolean {
  const aside = mkdtempSync(join(tmpdir(), "podnet-generate-"));
  try {
    generate(aside);
    const found = [...outputs.flatMap(({ gen }) => stale(aside, gen)), ...stalePages()];
    for (const name of found) console.error(`${name} is not current`);
    return found.length === 0;
  } finally {
    rmSync(aside, { recursive: true, force: true });
  }
}

if (process.argv.includes("--check")) {
  buf("lint");
  if (!check()) {
    console.error("Run scripts/generate and commit what it made");
    process.exitCode = 1;
  }
} else {
  for (const { gen } of outputs) rmSync(join(root, gen), { recursive: true, force: true });
  generate(root);
  writePages();
}
