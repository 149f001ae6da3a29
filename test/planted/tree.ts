import { execFile, execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import {
  chmodSync,
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { promisify } from "node:util";
import type { Fault } from "./fault.ts";

const top = path.resolve(import.meta.dirname, "../..");

export interface Outcome {
  readonly failed: boolean;
  readonly output: string;
}

/** What is built of the sources, below build/, and by what. */
const builds = { jail: "build-jail", agent: "build-agent", image: "build-image" } as const;

/** Longest a test may take, and a build, milliseconds. */
const limitMs = 240_000;

/** A copy of the sources in which faults are planted, so that nobody else ever runs them. */
export class Tree implements Disposable {
  readonly #directory: string;

  constructor() {
    this.#directory = mkdtempSync(path.join(tmpdir(), "podnet-planted-"));
    chmodSync(this.#directory, 0o755);
    mkdirSync(path.join(this.#directory, "build"));
    const sources = execFileSync("git", ["ls-files", "-zco", "--exclude-standard"], {
      cwd: top,
      encoding: "utf8",
    });
    // (Somebody may just be taking one away.)
    for (const file of sources.split("\0"))
      if (file !== "" && existsSync(path.join(top, file)))
        cpSync(path.join(top, file), path.join(this.#directory, file), { verbatimSymlinks: true });
    this.#share("node_modules");
    for (const name of readdirSync(path.join(top, "build"))) {
      if (name in builds) this.#shareBuilt(name as keyof typeof builds);
      else this.#share(`build/${name}`);
    }
  }

  /** Runs one test with the fault in place, and takes the fault out again. */
  async run({ file, find, put, build, noticedBy, slow }: Fault): Promise<Outcome> {
    const source = this.#read(file);
    const places = source.split(find).length - 1;
    if (places !== 1) throw new Error(`"${find}" stands ${places} times in ${file}: plant it anew`);
    this.#write(
      file,
      source.replace(find, () => put),
    );
    try {
      if (build !== undefined) await this.#build(build);
      return await this.#test(noticedBy, slow === true ? 150 : 60);
    } finally {
      this.#write(file, source);
      if (build !== undefined) this.#shareBuilt(build);
    }
  }

  async #test({ file, title }: Fault["noticedBy"], idleSeconds: number): Promise<Outcome> {
    // ava reads * and ! in a pattern; a title is meant word for word, as far as its patterns allow.
    const match = title.replace(/[!*]/g, "*");
    const child = spawn("scripts/ava", [`--timeout=${idleSeconds}s`, `--match=${match}`, file], {
      cwd: this.#directory,
      stdio: ["ignore", "pipe", "pipe"],
    });
    let output = "";
    for (const stream of [child.stdout, child.stderr])
      stream.on("data", (chunk: Buffer) => {
        output += chunk.toString();
      });
    const limit = setTimeout(() => child.kill("SIGKILL"), limitMs);
    await once(child, "close");
    clearTimeout(limit);
    // The test meant has failed, has not come to its end (◌) or has ended its process, and not something before it: a tree
    // that does not even load fails as well, and has no tests.
    const failed =
      output.includes(`✘ [fail]: ${title}`) ||
      output.includes(`◌ ${title}`) ||
      (output.includes("uncaught exception") && !output.includes("find any matching tests"));
    return { failed, output };
  }

  async #build(what: keyof typeof builds): Promise<void> {
    const program = path.join(this.#directory, "scripts", builds[what]);
    await promisify(execFile)(program, { cwd: this.#directory, timeout: limitMs });
  }

  #share(name: string): void {
    symlinkSync(path.join(top, name), path.join(this.#directory, name));
  }

  /** As it is here, file by file: a build puts others in their place. (A key would be written through its link.) */
  #shareBuilt(what: keyof typeof builds): void {
    const directory = path.join("build", what);
    rmSync(path.join(this.#directory, directory), { recursive: true, force: true });
    mkdirSync(path.join(this.#directory, directory));
    for (const name of readdirSync(path.join(top, directory)))
      if (!name.endsWith(".key")) this.#share(path.join(directory, name));
  }

  #read(file: string): string {
    return readFileSync(path.join(this.#directory, file), "utf8");
  }

  #write(file: string, text: string): void {
    writeFileSync(path.join(this.#directory, file), text);
  }

  [Symbol.dispose](): void {
    rmSync(this.#directory, { recursive: true, force: true });
  }
}
