import { execFileSync } from "node:child_process";
import path from "node:path";
import { faults } from "../test/planted/faults.ts";

const top = path.resolve(import.meta.dirname, "..");

/**
 * Test files that a change of this checkout is most likely to break: what differs from the upstream
 * branch, and tests that notice the planted faults of sources that differ. None without git or an
 * upstream, as in a fresh clone.
 */
export function changedTests(cwd = top): ReadonlySet<string> {
  const git = (...argv: readonly string[]): readonly string[] => {
    try {
      const text = execFileSync("git", argv, { cwd, stdio: ["ignore", "pipe", "ignore"] });
      return text
        .toString()
        .split("\0")
        .filter((line) => line !== "");
    } catch {
      return [];
    }
  };
  const changed = new Set([
    ...git("diff", "--name-only", "-z", "@{upstream}..."),
    ...git("diff", "--name-only", "-z", "HEAD"),
    ...git("ls-files", "--others", "--exclude-standard", "-z"),
  ]);
  const noticing = faults.filter(({ file }) => changed.has(file));
  return new Set([...changed, ...noticing.map(({ noticedBy }) => noticedBy.file)]);
}
