/**
 * Builds podnet-guest: TypeScript → one script (esbuild) → bytecode (QuickJS-NG in npm
 * quickjs-wasi), and the same engine's wasm → C (wasm2c) → objects; linked statically with musl.
 * Why so: docs/decisions/0005-agent-engine.md.
 */
import path from "node:path";
import { buildAgent } from "./agent-build.ts";
import { complainAndFail } from "./complain.ts";

try {
  await buildAgent(path.resolve(import.meta.dirname, ".."));
} catch (thrown) {
  complainAndFail("build-agent", thrown);
}
