/**
 * Runs several test files in one process, one after the other. Each process of a file by itself
 * starts Node and loads ava and hundreds of podnet's modules anew, which is most of what a short
 * file takes (docs/decisions/0157-unit-tests-share-a-process.md). The files are lines of
 * PODNET_TEST_FILES, from the top of the project. Only `scripts/run-ava.ts` runs this.
 */
import { registerHooks } from "node:module";
import path from "node:path";

const top = path.resolve(import.meta.dirname, "../..");
const byFile = new URL("ava-by-file.ts", import.meta.url).href;

registerHooks({
  resolve: (asked, context, next) =>
    asked === "ava" && context.parentURL !== byFile
      ? { url: byFile, shortCircuit: true }
      : next(asked, context),
});
const { beginFile, declareAll } = await import("./ava-by-file.ts");
for (const file of (process.env["PODNET_TEST_FILES"] ?? "").split("\n")) {
  beginFile(file);
  await import(path.join(top, file));
}
declareAll();
