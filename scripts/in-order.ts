import { readFileSync } from "node:fs";
import path from "node:path";

/**
 * Ava's configuration, and its files in the order that scripts/run-ava.ts names them in, by lines
 * of PODNET_TEST_ORDER.
 */
const top = path.resolve(import.meta.dirname, "..");
const { ava } = JSON.parse(readFileSync(path.join(top, "package.json"), "utf8")) as {
  ava: { files: string[] };
};
const order = (process.env["PODNET_TEST_ORDER"] ?? "").split("\n");
const place = (file: string): number => order.indexOf(path.relative(top, file));

const files = [...ava.files, "test/one-process/run.ts"];

// oxlint-disable-next-line import/no-default-export -- where ava looks for it
export default {
  ...ava,
  files,
  sortTestFiles: (a: string, b: string): number => place(a) - place(b),
};
