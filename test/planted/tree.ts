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
  /** Whether the test noticed the fault, in the way that the fault says. */
  readonly failed: boolean;
  readonly output: string;
}

/** What is built of the sources, below build/, and by what. */
const builds = { jail: "build-jail", agent: "build-agent", image: "build-image" } as const;

/** Longest a test may take, and a build, milliseconds. */
const limitMs = 240_000;

/** A test in which nothing happens for so long hangs, seconds. */
const idleSeconds = ({ slow, shows }: Fault): number =>
  shows === "hang" ? 40 : slow === true ? 150 : 60;

/** How the tests of one file went without a fault. */
export interface Unharmed {
  /** Titles of those that did not pass. */
  readonly failing: readonly string[];
  readonly output: string;
}

/**
 * Whether a line of ava's says that the test passed: `✔ TITLE`, with its time behind it when it
 * took long.
 */
const isPassed = (title: string, output: string): boolean =>
  output
    .split("\n")
    .some((line) => line.trimStart().replace(/ \([\dms. ]+\)$/, "") === `✔ ${title}`);

/**
 * Whether the test that was meant noticed: it is reported as failed. A test file that does not
 * load, a time-out and an exception outside of any test count only where the fault says that they
 * are how it shows.
 */
export function isNoticed({ noticedBy, shows }: Fault, output: string): boolean {
  const { title } = noticedBy;
  if (output.includes(`✘ [fail]: ${title}`)) return true;
  if (shows === "hang") return output.includes(`◌ ${title}`);
  return (
    shows === "end" &&
    /uncaught exception|unhandled rejection|exited with/i.test(output) &&
    !/find any matching tests|No tests found/.test(output)
  );
}

/** A copy of the sources in which faults are planted, so that no other test ever runs them. */
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
    // (Another run may just be removing one.)
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
  async run(fault: Fault): Promise<Outcome> {
    const { file, find, put, build, noticedBy } = fault;
    const source = this.#read(file);
    const places = source.split(find).length - 1;
    if (places !== 1) throw new Error(`"${find}" stands ${places} times in ${file}: plant it anew`);
    this.#write(
      file,
      source.replace(find, () => put),
    );
    try {
      if (build !== undefined) await this.#build(build);
      const output = await this.#test(noticedBy.file, [noticedBy.title], idleSeconds(fault));
      return { failed: isNoticed(fault, output), output };
    } finally {
      this.#write(file, source);
      if (build !== undefined) this.#shareBuilt(build);
    }
  }

  /**
   * Runs the tests of one file that have to notice faults, without any fault; their titles, of
   * those that did not pass.
   */
  async runUnharmed(file: string, some: readonly Fault[]): Promise<Unharmed> {
    const titles = [...new Set(some.map(({ noticedBy }) => noticedBy.title))];
    const output = await this.#test(file, titles, Math.max(...some.map(idleSeconds)));
    return { failing: titles.filter((title) => !isPassed(title, output)), output };
  }

  async #test(file: string, titles: readonly string[], idle: number): Promise<string> {
    // ava reads * and ! in a pattern; a title is meant word for word, as far as its patterns allow.
    const matches = titles.map((title) => `--match=${title.replace(/[!*]/g, "*")}`);
    // A title may differ in a complete run, and be missing in a short one; what a fault needs is
    // what its file does by itself.
    const { PODNET_TEST_FULL: _, PODNET_TEST_SHORT: __, ...env } = process.env;
    const child = spawn("scripts/ava", [`--timeout=${idle}s`, ...matches, file], {
      cwd: this.#directory,
      env,
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
    return output;
  }

  async #build(what: keyof typeof builds): Promise<void> {
    const program = path.join(this.#directory, "scripts", builds[what]);
    await promisify(execFile)(program, { cwd: this.#directory, timeout: limitMs });
  }

  #share(name: string): void {
    symlinkSync(path.join(top, name), path.join(this.#directory, name));
  }

  /**
   * As it is here, file by file: a build puts others in their place. (A key would be written
   * through its link.)
   */
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
