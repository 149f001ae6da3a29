import {
  copyFileSync,
  mkdirSync,
  readFileSync,
  readdirSync,
  statSync,
  writeFileSync,
} from "node:fs";
import path from "node:path";
import { type BuildResult, build } from "esbuild";
import { CompileFlags, QuickJS } from "quickjs-wasi";
import { PodnetError } from "../core/errors.ts";
import { BuildCache, keyOf, place, sha256, sha256File } from "../guest-init/image/cache.ts";
import { kib, step } from "../guest-init/image/report.ts";
import type { Architecture } from "../guest-init/image/debian.ts";
import { findProgram, run } from "../linux/command.ts";

/** The Z_ names in native/engine.c are those of these two versions. */
const pinned = { "quickjs-wasi": "3.6.2", wasm2c: "1.0.32" } as const;
/** What the agent is compiled with, for each architecture that guests have. */
interface Target {
  /** Below build/. */
  readonly directory: string;
  readonly compiler: string;
  readonly package: string;
  readonly flags: readonly string[];
  /** Bytes. Larger is a mistake: the agent is part of every guest. */
  readonly sizeLimit: number;
}

const targets: Readonly<Record<Architecture, Target>> = {
  amd64: {
    directory: "agent",
    compiler: "musl-gcc",
    package: "musl-tools",
    // musl's wrapper leaves out the kernel's headers.
    flags: [
      ["-idirafter", "/usr/include"],
      ["-idirafter", "/usr/include/x86_64-linux-gnu"],
    ].flat(),
    sizeLimit: 1536 * 1024,
  },
  // Debian has no musl for another architecture than the machine's own; glibc makes it half a megabyte larger.
  arm64: {
    directory: "agent-arm64",
    compiler: "aarch64-linux-gnu-gcc",
    package: "gcc-aarch64-linux-gnu and libc6-dev-arm64-cross",
    flags: [],
    sizeLimit: 2048 * 1024,
  },
};

const wasm2cRuntime = "/usr/share/wabt/wasm2c";
const commonFlags = ["-static", "-ffunction-sections", "-fdata-sections", "-fno-ident"];
/** The engine: size counts more than speed, the agent waits for the kernel most of its time. */
const engineFlags = [...commonFlags, "-Os", "-fno-strict-aliasing", "-w"];
const nativeFlags = [...commonFlags, "-Os", "-Wall", "-Wextra", "-std=gnu11"];

/**
 * Builds build/agent/podnet-guest (build/agent-arm64/podnet-guest), or leaves it when its inputs are unchanged. Answers its
 * path.
 */
export async function buildAgent(
  top: string,
  architecture: Architecture = "amd64",
): Promise<string> {
  const target = targets[architecture];
  const cache = new BuildCache(path.join(top, "build/cache/agent"));
  const wasm = path.join(top, "node_modules/quickjs-wasi/quickjs.wasm");
  const native = path.join(top, "guest-init/agent/native");
  const compiler = await checkTools(top, target);

  const script = await bundle(top);
  const script_key = keyOf(script, sha256File(wasm));
  const bytecode = await cache.file("bytecode.h", script_key, (to) => compile(wasm, script, to));

  const engineKey = keyOf(sha256File(wasm), compiler, ...engineFlags, ...target.flags);
  const engineC = await cache.file("quickjs", keyOf(sha256File(wasm), pinned.wasm2c), (to) =>
    translate(wasm, to),
  );
  const engine = await cache.file("quickjs.o", engineKey, (to) =>
    step("QuickJS-NG: compile C", () =>
      cc(target, [...engineFlags, "-c", path.join(engineC, "quickjs.c"), "-o", to], engineC),
    ),
  );

  const sources = readdirSync(native).sort();
  const nativeKey = keyOf(
    compiler,
    engineKey,
    script_key,
    ...nativeFlags,
    ...sources.map((name) => sha256File(path.join(native, name))),
  );
  const program = await cache.file("podnet-guest", nativeKey, (to) =>
    step("link", () => link({ target, native, sources, engine, engineC, bytecode, to })),
  );
  const directory = path.join(top, "build", target.directory);
  mkdirSync(directory, { recursive: true });
  return publish(program, path.join(directory, "podnet-guest"), target.sizeLimit);
}

/** Throws `COMMAND_FAILED` or `PREFLIGHT_FAILED` naming what is missing; answers the compiler's version. */
async function checkTools(top: string, { compiler, package: packages }: Target): Promise<string> {
  const manifest = path.join(top, "node_modules/quickjs-wasi/package.json");
  const { version } = JSON.parse(readFileSync(manifest, "utf8")) as { version: string };
  const wasm2c = (await run(["wasm2c", "--version"])).stdout.trim();
  for (const [name, found, wanted] of [
    ["npm quickjs-wasi", version, pinned["quickjs-wasi"]],
    ["wasm2c", wasm2c, pinned.wasm2c],
  ] as const) {
    if (!found.startsWith(wanted))
      throw new PodnetError(
        "PREFLIGHT_FAILED",
        `${name} is ${found}, the agent is written for ${wanted}`,
        {
          hint: "Run scripts/setup on Debian 12",
        },
      );
  }
  if (findProgram(compiler) === undefined)
    throw new PodnetError("PREFLIGHT_FAILED", `The compiler ${compiler} is not installed`, {
      hint: `Install ${packages}`,
    });
  return (await run([compiler, "--version"])).stdout.split("\n")[0] ?? "";
}

/** All of the agent as one script. Its engine is of 2025, so private fields and the like stay as they are. */
async function bundle(top: string): Promise<string> {
  const { version } = JSON.parse(readFileSync(path.join(top, "package.json"), "utf8")) as {
    version: string;
  };
  const result: BuildResult<{ write: false }> = await build({
    entryPoints: [path.join(top, "guest-init/agent/main.ts")],
    bundle: true,
    write: false,
    format: "iife",
    target: "es2022",
    platform: "neutral",
    minifySyntax: true,
    minifyWhitespace: true,
    legalComments: "none",
    logLevel: "error",
    define: { podnetVersion: JSON.stringify(version) },
  });
  return result.outputFiles[0]?.text ?? "";
}

/** Bytecode as a C header. Names and lines stay, so that a stack trace on the console says where. */
async function compile(wasm: string, script: string, to: string): Promise<void> {
  using vm = await QuickJS.create({ wasm: readFileSync(wasm) });
  const code = vm.compile(script, "agent.js", 0, CompileFlags.STRIP_SOURCE);
  const rows: string[] = [];
  for (let at = 0; at < code.length; at += 32) rows.push(code.subarray(at, at + 32).join(","));
  writeFileSync(to, `static const unsigned char agent_bytecode[] = {\n${rows.join(",\n")}\n};\n`);
}

async function translate(wasm: string, to: string): Promise<void> {
  await run(["mkdir", "-p", to]);
  await step("QuickJS-NG: wasm to C", () =>
    run(["wasm2c", "--module-name=quickjs", wasm, "-o", path.join(to, "quickjs.c")]),
  );
  for (const name of ["wasm-rt-impl.c", "wasm-rt-impl.h"])
    copyFileSync(path.join(wasm2cRuntime, name), path.join(to, name));
  // Copied so that no other header of /usr/include comes before musl's.
  copyFileSync("/usr/include/wasm-rt.h", path.join(to, "wasm-rt.h"));
}

/** Paths that get into the program (of `assert`) are shortened: the same inputs give the same bytes in any checkout. */
async function cc(target: Target, args: readonly string[], include: string): Promise<void> {
  const shortened = `-ffile-prefix-map=${path.dirname(include)}=.`;
  await run([target.compiler, shortened, "-I", include, ...target.flags, ...args], {
    timeoutMs: 300_000,
  });
}

async function link(parts: {
  target: Target;
  native: string;
  sources: readonly string[];
  engine: string;
  engineC: string;
  bytecode: string;
  to: string;
}): Promise<void> {
  const { target, native, sources, engine, engineC, bytecode, to } = parts;
  const work = `${to}.d`;
  await run(["mkdir", "-p", work]);
  try {
    copyFileSync(bytecode, path.join(work, "bytecode.h"));
    const ours = sources
      .filter((name) => name.endsWith(".c"))
      .map((name) => path.join(native, name));
    const flags = [...nativeFlags, "-I", work, "-I", native, "-Wl,--gc-sections", "-s", "-x", "c"];
    const runtime = path.join(engineC, "wasm-rt-impl.c");
    await cc(target, [...flags, ...ours, runtime, "-x", "none", engine, "-lm", "-o", to], engineC);
  } finally {
    await run(["rm", "-rf", work]);
  }
}

function publish(program: string, to: string, sizeLimit: number): string {
  const size = statSync(program).size;
  if (size > sizeLimit)
    throw new PodnetError(
      "PREFLIGHT_FAILED",
      `The agent has ${kib(size)}, its limit is ${kib(sizeLimit)}`,
    );
  const digest = sha256(readFileSync(program));
  let current = "";
  try {
    current = sha256File(to);
  } catch {}
  if (current !== digest) {
    place(to, (draft) => copyFileSync(program, draft));
  }
  console.log(`  ${path.basename(to)}: ${kib(size)}, sha256 ${digest.slice(0, 16)}`);
  return to;
}
