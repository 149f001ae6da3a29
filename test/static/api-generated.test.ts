import { execFile } from "node:child_process";
import path from "node:path";
import { promisify } from "node:util";
import test from "ava";

test("api/gen and its like are what the .proto files make, and they pass buf's lint", async (t) => {
  const generate = path.resolve(import.meta.dirname, "../../scripts/generate");
  await t.notThrowsAsync(promisify(execFile)(generate, ["--check"]));
});
