/**
 * Builds podnet-guest: TypeScript → one script (esbuild) → bytecode (QuickJS-NG in npm quickjs-wasi), and the same
 * engine's wasm → C (wasm2c) → objects; linked statically with musl. Why so: docs/decisions/0005-agent-engine.md.
 */
import { mkdirSync } from "node:fs";
import path from "node:path";
import { isPodnetError } from "../core/errors.ts";
import { buildAgent } from "./agent-build.ts";

const top = path.resolve(import.meta.dirname, "..");
mkdirSync(path.join(top, "build/agent"), { recursive: true });
try {
  await buildAgent(top);
} catch (thrown) {
  if (!isPodnetError(thrown)) throw thrown;
  console.error(`build-agent: ${thrown.message}`);
  if (thrown.hint !== undefined) console.error(`  ${thrown.hint}`);
  const { stderr } = thrown.details;
  if (stderr !== undefined) console.error(stderr);
  process.exitCode = 1;
}
