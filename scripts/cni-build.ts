import { existsSync, mkdirSync } from "node:fs";
import path from "node:path";
import { step } from "../guest-init/image/report.ts";
import { run } from "../linux/processes/command.ts";
import {
  buildParts,
  compileEngine,
  engineNative,
  filesIn,
  link,
  musl,
  type Program,
  publish,
} from "./script-program.ts";

const native = "cni/plugin/native";

/**
 * Builds build/cni-plugin/podnet-cni, or leaves it when its inputs are unchanged. Answers its path.
 * Linked twice: the first, the seed, runs here until it has started; what it then holds goes into
 * the second (cni/plugin/native/frozen.h).
 */
export async function buildCni(top: string): Promise<string> {
  const at = (file: string): string => path.join(top, file);
  const shared = ["engine.c", "engine.h", "inside.h", "instance.c", "thaw.h"].map((name) =>
    path.join(engineNative, name),
  );
  const program: Program = {
    name: "podnet-cni",
    entry: "cni/plugin/main.ts",
    sources: [...filesIn(top, native), ...shared],
    target: musl,
    directory: "build/cni-plugin",
    sizeLimit: 1536 * 1024,
  };
  const parts = await buildParts(top, program);
  const sources = (names: readonly string[]): readonly string[] =>
    [...names.map((name) => path.join(native, name)), path.join(engineNative, "engine.c")].map(at);
  const include = ["-I", at(engineNative)];

  const built = await parts.cache.file(program.name, parts.key, async (to) => {
    const engine = await compileEngine(top, parts);
    const work = `${to}.frozen`;
    mkdirSync(work, { recursive: true });
    try {
      const seed = path.join(work, "seed");
      await step("link the seed, and start it", async () => {
        const flags = [...include, "-DPODNET_SEED"];
        await link(parts, engine, sources(["main.c", "sys.c", "freeze.c"]), seed, flags);
        const numbers = path.join(work, "frozen-numbers.h");
        await run([seed, path.join(work, "frozen.bin"), numbers]);
      });
      await step("link", () => {
        const flags = [...include, "-I", work, `-Wa,-I,${work}`];
        return link(parts, engine, sources(["main.c", "sys.c", "thaw.c"]), to, flags);
      });
    } finally {
      if (existsSync(work)) await run(["rm", "-rf", work]);
    }
  });
  return publish(top, program, built);
}
