import path from "node:path";
import type { Architecture } from "../guest-init/image/debian.ts";
import { step } from "../guest-init/image/report.ts";
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

/** The agent for each architecture that guests have. */
const variants: Readonly<
  Record<Architecture, Pick<Program, "target" | "directory" | "sizeLimit">>
> = {
  // The agent is part of every guest: a larger one is a mistake.
  amd64: { target: musl, directory: "build/agent", sizeLimit: 1536 * 1024 },
  // Debian has no musl for another architecture than the machine's own; glibc makes it half a
  // megabyte larger.
  arm64: {
    target: {
      compiler: "aarch64-linux-gnu-gcc",
      package: "gcc-aarch64-linux-gnu and libc6-dev-arm64-cross",
      flags: [],
    },
    directory: "build/agent-arm64",
    sizeLimit: 2048 * 1024,
  },
};

/**
 * Builds build/agent/podnet-guest (build/agent-arm64/podnet-guest), or leaves it when its inputs
 * are unchanged. Answers its path.
 */
export async function buildAgent(
  top: string,
  architecture: Architecture = "amd64",
): Promise<string> {
  const program: Program = {
    name: "podnet-guest",
    entry: "guest-init/agent/main.ts",
    sources: filesIn(top, engineNative),
    ...variants[architecture],
  };
  const parts = await buildParts(top, program);
  const engine = await compileEngine(top, parts);
  const sources = program.sources
    .filter((file) => file.endsWith(".c") && !file.endsWith("/instance.c"))
    .map((file) => path.join(top, file));
  const built = await parts.cache.file(program.name, parts.key, (to) =>
    step("link", () => link(parts, engine, sources, to)),
  );
  return publish(top, program, built);
}
