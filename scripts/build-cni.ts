/**
 * Builds podnet-cni: the same toolchain as the agent's, frozen when it has started. Why so:
 * docs/decisions/0046-cni-plugin.md.
 */
import path from "node:path";
import { buildCni } from "./cni-build.ts";
import { complainAndFail } from "./complain.ts";

try {
  await buildCni(path.resolve(import.meta.dirname, ".."));
} catch (thrown) {
  complainAndFail("build-cni", thrown);
}
