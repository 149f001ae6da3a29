import { globSync, readFileSync } from "node:fs";
import path from "node:path";

const top = path.resolve(import.meta.dirname, "../..");

/** One fenced block of shell commands in a page. */
export interface Snippet {
  readonly page: string;
  readonly line: number;
  /**
   * The word after `sh`: `lab` blocks run against a lab's daemon, `hosts` blocks against one of
   * several in an overlay, `rights` blocks against an etcd with users, `cluster` blocks against
   * Nodes of Kubernetes, `flannel` blocks on a host that had flanneld, `installed` blocks on a host
   * with systemd, `everyday` blocks as `lab` ones but each command by itself, and blocks without a
   * word stand in `ranElsewhere`.
   */
  readonly where: string;
  readonly commands: readonly string[];
}

/** Every ```sh block of README, CONTRIBUTING and docs/, in the order a reader meets them. */
export function snippets(): readonly Snippet[] {
  const pages = ["README.md", "CONTRIBUTING.md", ...globSync("docs/**/*.md", { cwd: top }).sort()];
  return pages.flatMap((page) => {
    const found: Snippet[] = [];
    let open: { line: number; where: string; commands: string[] } | undefined;
    for (const [index, line] of readFileSync(path.join(top, page), "utf8").split("\n").entries()) {
      const fence = /^\s*```(\w*)\s*(\w*)\s*$/.exec(line);
      if (fence === null) {
        if (open !== undefined && line.trim() !== "" && !line.trim().startsWith("#")) {
          open.commands.push(line.trim());
        }
      } else if (open !== undefined) {
        found.push({ page, ...open });
        open = undefined;
      } else if (fence[1] === "sh") open = { line: index + 1, where: fence[2] ?? "", commands: [] };
      else if (fence[1] === "bash" || fence[1] === "shell" || fence[1] === "console") {
        throw new Error(
          `${page}:${index + 1}: write shell commands as \`\`\`sh, so that a test runs them`,
        );
      }
    }
    return found;
  });
}
