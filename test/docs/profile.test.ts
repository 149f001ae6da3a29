import { execFile } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { promisify } from "node:util";
import test from "ava";

const top = path.resolve(import.meta.dirname, "../..");

test("the profile measures every path, and writes tables and plots", async (t) => {
  t.timeout(280_000);
  const directory = mkdtempSync(path.join(tmpdir(), "podnet-profile-"));
  try {
    // What scripts/bench starts, in the sandbox that the tests are in already.
    const words = ["scripts/bench.d/profile.ts", "1", directory];
    const { stdout } = await promisify(execFile)("scripts/node", words, { cwd: top });
    const last = stdout.trimEnd().split("\n").at(-1) ?? "";
    const figure = String.raw`[\d.]+`;
    const names = ["cold", "clone", "pool", "add", "publish", "publish_iptables", "exec"];
    t.regex(last, new RegExp(`^profile ${names.map((name) => `${name}_ms=${figure}`).join(" ")}$`));
    const tables = readFileSync(path.join(directory, "tables.md"), "utf8");
    const parts = ["kernel boots", "the template's state is loaded", "NIC plugged"];
    for (const part of [...parts, "the machine runs again"])
      t.true(tables.includes(`| ${part} |`), part);
    for (const plot of ["creates.svg", "calls.svg"]) {
      t.regex(readFileSync(path.join(directory, plot), "utf8"), /^<svg .*<\/svg>\n$/s);
      t.true(existsSync(path.join(top, "docs/explanation/profile", plot)), plot);
    }
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
});
