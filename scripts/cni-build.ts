import { existsSync, mkdirSync } from "node:fs";
import path from "node:path";
import { step } from "../guest-init/image/report.ts";
import { run } from "../linux/command.ts";
import {
  buildParts,
  compileEngine,
  filesIn,
  link,
  musl,
  type Program,
  publish,
} from "./script-program.ts";

const native = "cni/plugin/native";
const engine = "guest-init/agent/native";
const thawedEngine = `${native}/thawed-engine.c`;

/**
 * Builds build/cni-plugin/podnet-cni, or leaves it when its inputs are unchanged. Answers its path. Linked twice: the first, the
 * seed, runs here until it has started; what it then holds goes into the second (cni/plugin/native/frozen.h).
 */
export async function buildCni(top: string): Promise<string> {
  const at = (file: string): string => path.join(top, file);
  const shared = ["engine.c", "engine.h", "inside.h"].map((name) => path.join(engine, name));
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
    [...names.map((name) => path.join(native, name)), path.join(engine, "engine.c")].map(at);
  const include = ["-I", at(engine)];

  const built = await parts.cache.file(program.name, parts.key, async (to) => {
    const work = `${to}.frozen`;
    mkdirSync(work, { recursive: true });
    try {
      const seed = path.join(work, "seed");
      await step("link the seed, and start it", async () => {
        const flags = [...include, "-DPODNET_SEED"];
        const plain = await compileEngine(parts);
        await link(parts, plain, sources(["main.c", "sys.c", "freeze.c"]), seed, flags);
        const numbers = path.join(work, "frozen-numbers.h");
        await run([seed, path.join(work, "frozen.bin"), numbers]);
      });
      const thawed = await compileEngine(parts, at(thawedEngine), ["-I", at(native)]);
      await step("link", () => {
        const flags = [...include, "-I", work, `-Wa,-I,${work}`];
        return link(parts, thawed, sources(["main.c", "sys.c", "thaw.c"]), to, flags);
      });
    } finally {
      if (existsSync(work)) await run(["rm", "-rf", work]);
    }
  });
  return publish(top, program, built);
}
