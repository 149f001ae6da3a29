import { globSync } from "node:fs";
import path from "node:path";

export const top = path.resolve(import.meta.dirname, "../..");

const foreign =
  /^(?:node_modules|build|api\/gen|etcd\/gen|daemon\/(?:cri|hyperd)\/gen|test\/fuzz\/corpus)\/|^scripts\/words\//;

/** The text that we write, sorted: programs, tests, protobuf definitions and Markdown. */
export function textFiles(): readonly string[] {
  return globSync(["**/*.{ts,tsx,proto,c,h,md}", "scripts/*", "bin/*"], {
    cwd: top,
    exclude: ["node_modules", "build", ".git"],
    withFileTypes: true,
  })
    .filter((entry) => entry.isFile())
    .map((entry) => path.relative(top, path.join(entry.parentPath, entry.name)))
    .filter((file) => !foreign.test(file))
    .sort()
    .filter((file, index, all) => file !== all[index - 1]);
}
