import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { cpSync, mkdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import path from "node:path";

const top = path.resolve(import.meta.dirname, "../..");

/** A fault to plant: one piece of one file, written differently. */
export interface Fault {
  /** What is missing or wrong with it, in words. */
  readonly name: string;
  readonly file: string;
  /** Must stand in the file exactly once. */
  readonly find: string;
  readonly put: string;
  /** Who has to notice. */
  readonly noticedBy: { readonly file: string; readonly title: string };
}

export interface Outcome {
  readonly failed: boolean;
  readonly output: string;
}

/** A copy of the sources in which faults are planted, so that nobody else ever runs them. */
export class Tree implements Disposable {
  readonly #directory: string;

  constructor() {
    this.#directory = path.join(top, "build", `planted-${process.pid}`);
    mkdirSync(this.#directory, { recursive: true });
    const tracked = execFileSync("git", ["ls-files", "-z"], { cwd: top, encoding: "utf8" });
    for (const file of tracked.split("\0").filter((name) => name !== ""))
      cpSync(path.join(top, file), path.join(this.#directory, file), { verbatimSymlinks: true });
    for (const shared of ["node_modules", "build"])
      symlinkSync(path.join(top, shared), path.join(this.#directory, shared));
  }

  /** Runs one test with the fault in place, and takes the fault out again. */
  async run(fault: Fault): Promise<Outcome> {
    const file = path.join(this.#directory, fault.file);
    const source = readFileSync(file, "utf8");
    const places = source.split(fault.find).length - 1;
    if (places !== 1)
      throw new Error(`"${fault.find}" stands ${places} times in ${fault.file}: plant it anew`);
    writeFileSync(
      file,
      source.replace(fault.find, () => fault.put),
    );
    try {
      return await this.#test(fault.noticedBy);
    } finally {
      writeFileSync(file, source);
    }
  }

  async #test({ file, title }: Fault["noticedBy"]): Promise<Outcome> {
    // ava reads * and ! in a pattern; a title is meant word for word, as far as its patterns allow.
    const match = title.replace(/[!*]/g, "*");
    const child = spawn("scripts/ava", ["--timeout=60s", `--match=${match}`, file], {
      cwd: this.#directory,
      stdio: ["ignore", "pipe", "pipe"],
    });
    let output = "";
    for (const stream of [child.stdout, child.stderr])
      stream.on("data", (chunk: Buffer) => (output += chunk.toString()));
    const limit = setTimeout(() => child.kill("SIGKILL"), 120_000);
    const [code] = (await once(child, "close")) as [number | null];
    clearTimeout(limit);
    return { failed: code !== 0, output };
  }

  [Symbol.dispose](): void {
    rmSync(this.#directory, { recursive: true, force: true });
  }
}
