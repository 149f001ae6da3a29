/**
 * TypeScript as a static executable: one script (esbuild) → bytecode (QuickJS-NG in npm
 * quickjs-wasi), and the same engine's wasm → C (wasm2c) → objects, linked with a program's native
 * code. Why so: docs/decisions/0005-agent-engine.md.
 */
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
import { findProgram, run } from "../linux/processes/command.ts";

/** The Z_ names in guest-init/agent/native/engine.c are those of these two versions. */
const pinned = { "quickjs-wasi": "3.6.2", wasm2c: "1.0.32" } as const;

/** What a program is compiled with. */
export interface Target {
  readonly compiler: string;
  /** What to install for it. */
  readonly package: string;
  readonly flags: readonly string[];
}

export const musl: Target = {
  compiler: "musl-gcc",
  package: "musl-tools",
  // musl's wrapper leaves out the kernel's headers.
  flags: [
    ["-idirafter", "/usr/include"],
    ["-idirafter", "/usr/include/x86_64-linux-gnu"],
  ].flat(),
};

export interface Program {
  readonly name: string;
  /** The module that begins, from the checkout's top. */
  readonly entry: string;
  /** Its C files, and the engine's, from the checkout's top. */
  readonly sources: readonly string[];
  readonly target: Target;
  /** Where it goes, from the checkout's top. */
  readonly directory: string;
  /** Bytes. Larger is a mistake. */
  readonly sizeLimit: number;
}

/** What every program with the engine in it is made of. */
export interface Parts {
  readonly cache: BuildCache;
  readonly target: Target;
  /** Changes with anything the parts are made from. */
  readonly key: string;
  readonly engineKey: readonly string[];
  /** Directory of the engine's C. */
  readonly engineC: string;
  /** `program_bytecode`, a header. */
  readonly bytecode: string;
}

const wasm2cRuntime = "/usr/share/wabt/wasm2c";
const commonFlags = ["-static", "-ffunction-sections", "-fdata-sections", "-fno-ident"];
/** The engine: size counts more than speed, its programs wait for others most of their time. */
const engineFlags = [...commonFlags, "-Os", "-fno-strict-aliasing", "-w"];
const nativeFlags = [...commonFlags, "-Os", "-Wall", "-Wextra", "-std=gnu11"];

/** Translates and compiles what is the program's own; what is there already is taken. */
export async function buildParts(top: string, program: Program): Promise<Parts> {
  const { target, entry } = program;
  const cache = new BuildCache(path.join(top, "build/cache/agent"));
  const wasm = path.join(top, "node_modules/quickjs-wasi/quickjs.wasm");
  const engineKey = [sha256File(wasm), await checkTools(top, target)];
  const script = await bundle(top, entry);
  const scriptKey = keyOf(script, sha256File(wasm), program.name);
  const bytecode = await cache.file("bytecode.h", scriptKey, (to) =>
    compile(wasm, script, program.name, to),
  );
  const engineC = await cache.file("quickjs", keyOf(sha256File(wasm), pinned.wasm2c), (to) =>
    translate(wasm, to),
  );
  const key = keyOf(
    ...engineKey,
    scriptKey,
    ...engineFlags,
    ...nativeFlags,
    ...target.flags,
    ...program.sources.map((file) => sha256File(path.join(top, file))),
  );
  return { cache, target, key, engineKey, engineC, bytecode };
}

/** What is shared by all programs: the engine around quickjs.c, and the way into it. */
export const engineNative = "guest-init/agent/native";

/** The engine compiled, once for all programs of a target. */
export function compileEngine(top: string, parts: Parts): Promise<string> {
  const { cache, target, engineC, engineKey } = parts;
  const native = path.join(top, engineNative);
  const source = path.join(native, "instance.c");
  const key = keyOf(...engineKey, ...engineFlags, ...target.flags, sha256File(source));
  return cache.file("quickjs.o", key, (to) =>
    step("QuickJS-NG: compile C", () =>
      cc(target, [...engineFlags, "-I", native, "-c", source, "-o", to], engineC),
    ),
  );
}

/**
 * Links an executable of the parts, the engine compiled and C files (or assembler), which find the
 * bytecode and `include`.
 */
export async function link(
  parts: Parts,
  engine: string,
  sources: readonly string[],
  to: string,
  flags: readonly string[] = [],
): Promise<void> {
  const work = `${to}.d`;
  mkdirSync(work, { recursive: true });
  try {
    copyFileSync(parts.bytecode, path.join(work, "bytecode.h"));
    const own = [...nativeFlags, "-I", work, "-Wl,--gc-sections", "-s", ...flags];
    const runtime = path.join(parts.engineC, "wasm-rt-impl.c");
    await cc(
      parts.target,
      [...own, "-x", "c", ...sources, runtime, "-x", "none", engine, "-lm", "-o", to],
      parts.engineC,
    );
  } finally {
    await run(["rm", "-rf", work]);
  }
}

/**
 * Throws `COMMAND_FAILED` or `PREFLIGHT_FAILED` naming what is missing; answers the compiler's
 * version.
 */
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
        `${name} is ${found}, what has the engine in it is written for ${wanted}`,
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

/**
 * All of a program as one script. Its engine is of 2025, so private fields and the like stay as
 * they are.
 */
async function bundle(top: string, entry: string): Promise<string> {
  const { version } = JSON.parse(readFileSync(path.join(top, "package.json"), "utf8")) as {
    version: string;
  };
  const result: BuildResult<{ write: false }> = await build({
    entryPoints: [path.join(top, entry)],
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

/** Bytecode as a C header. Names and lines stay, so that a stack trace says where. */
async function compile(wasm: string, script: string, name: string, to: string): Promise<void> {
  using vm = await QuickJS.create({ wasm: readFileSync(wasm) });
  const code = vm.compile(script, `${name}.js`, 0, CompileFlags.STRIP_SOURCE);
  const rows: string[] = [];
  for (let at = 0; at < code.length; at += 32) rows.push(code.subarray(at, at + 32).join(","));
  writeFileSync(to, `static const unsigned char program_bytecode[] = {\n${rows.join(",\n")}\n};\n`);
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

/**
 * Paths that get into the program (of `assert`) are shortened: the same inputs give the same bytes
 * in any checkout.
 */
async function cc(target: Target, args: readonly string[], include: string): Promise<void> {
  const shortened = `-ffile-prefix-map=${path.dirname(include)}=.`;
  await run([target.compiler, shortened, "-I", include, ...target.flags, ...args], {
    timeoutMs: 300_000,
  });
}

/**
 * Puts an executable where it belongs, or leaves what is there when that is the same. Answers its
 * path.
 */
export function publish(top: string, program: Program, built: string): string {
  const { name, directory, sizeLimit } = program;
  const size = statSync(built).size;
  if (size > sizeLimit)
    throw new PodnetError(
      "PREFLIGHT_FAILED",
      `${name} has ${kib(size)}, its limit is ${kib(sizeLimit)}`,
    );
  mkdirSync(path.join(top, directory), { recursive: true });
  const to = path.join(top, directory, name);
  const digest = sha256(readFileSync(built));
  let current = "";
  try {
    current = sha256File(to);
  } catch {}
  if (current !== digest) {
    place(to, (temporary) => copyFileSync(built, temporary));
  }
  console.log(`  ${name}: ${kib(size)}, sha256 ${digest.slice(0, 16)}`);
  return to;
}

/** Files of a directory, from the checkout's top, in order. */
export const filesIn = (top: string, directory: string): readonly string[] =>
  readdirSync(path.join(top, directory))
    .sort()
    .map((name) => path.join(directory, name));
