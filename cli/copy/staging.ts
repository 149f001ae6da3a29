import { lstatSync, mkdtempSync, readdirSync, renameSync, rmSync } from "node:fs";
import path from "node:path";
import { PodnetError } from "../../core/errors.ts";
import { usage } from "../usage.ts";

/** Runs what works on files here. Throws `SYSCALL_FAILED` for what the system refuses. */
export function onFiles<T>(what: string, body: () => T): T {
  try {
    return body();
  } catch (thrown) {
    const { code, message, syscall } = thrown as NodeJS.ErrnoException;
    if (code === undefined || thrown instanceof PodnetError) throw thrown;
    throw new PodnetError("SYSCALL_FAILED", `${what}: ${message}`, {
      cause: thrown,
      details: { errno: code, syscall: syscall ?? "" },
    });
  }
}

/**
 * A private directory alongside where a copy goes: what comes is made in it, where nothing is that
 * could lead elsewhere, and moved into place when all of it has come. Disposing removes what was
 * not moved.
 */
export class Staging implements Disposable {
  /** The root of the files to move. */
  readonly root: string;

  /** Throws `SYSCALL_FAILED` where nothing can be made. */
  constructor(alongside: string) {
    this.root = onFiles(`Cannot write to "${alongside}"`, () =>
      mkdtempSync(path.join(alongside, ".podnet-cp-")),
    );
  }

  /**
   * Moves everything into a directory. Existing files are replaced, and so are links, which are
   * never followed; directories are merged. Throws `INVALID_ARGUMENT` where a directory and another
   * kind of file have one name, `SYSCALL_FAILED`.
   */
  moveInto(directory: string): void {
    onFiles(`Cannot write to "${directory}"`, () => join(this.root, directory));
  }

  [Symbol.dispose](): void {
    rmSync(this.root, { recursive: true, force: true });
  }
}

function join(from: string, to: string): void {
  for (const name of readdirSync(from)) {
    const [source, target] = [path.join(from, name), path.join(to, name)];
    const isDirectory = lstatSync(source).isDirectory();
    const there = lstatSync(target, { throwIfNoEntry: false });
    if (there === undefined || (!isDirectory && !there.isDirectory())) {
      renameSync(source, target);
    } else if (isDirectory && there.isDirectory()) {
      join(source, target);
    } else {
      const what = there.isDirectory() ? "a directory" : "no directory";
      throw usage(`"${target}" is ${what}`, "Take it away, or copy to another name", "destination");
    }
  }
}
