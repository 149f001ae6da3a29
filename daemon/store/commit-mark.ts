import { hash } from "node:crypto";
import { closeSync, constants, openSync, writeSync } from "node:fs";
import { readRegular } from "../../linux/files/regular-file.ts";

/**
 * Number of commits of the state, in a separate file: a start compares both. A log that was cut,
 * damaged or removed, or an older database put in its place, has fewer. SQLite itself cannot detect
 * this: to it, a log ends at its first bad frame.
 *
 * The file is written after each commit and never flushed. It survives the end of the process (in
 * the page cache). After a loss of power its content is of another boot, and is not compared.
 */
export class CommitMark implements Disposable {
  readonly #fd: number;
  readonly #bootId: string;

  private constructor(fd: number, bootId: string) {
    this.#fd = fd;
    this.#bootId = bootId;
  }

  /** Opens the mark of a database for writing, and makes it. Throws what `openSync` throws. */
  static open(file: string, bootId: string): CommitMark {
    const { O_RDWR, O_CREAT, O_NOFOLLOW, O_NONBLOCK } = constants;
    const fd = openSync(markOf(file), O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK, 0o600);
    return new CommitMark(fd, bootId);
  }

  /**
   * Throws when it cannot be written: the commit counts anyway, and a lower mark causes no error.
   */
  write(commits: number): void {
    const line = lineOf(this.#bootId, commits);
    writeSync(this.#fd, line, 0, line.length, 0);
  }

  [Symbol.dispose](): void {
    closeSync(this.#fd);
  }
}

/** Where the mark of a database is. */
export const markOf = (file: string): string => `${file}-mark`;

/**
 * The least number of commits of a database, by its mark of this boot; undefined when there is
 * none, when it is of another boot, or when it is damaged itself.
 */
export function readMark(file: string, bootId: string): number | undefined {
  let text: string;
  try {
    text = readRegular(markOf(file), markBytes).toString("latin1");
  } catch {
    return undefined;
  }
  const [, boot = "", commits = ""] = text.split(" ");
  const read = Number(commits);
  if (boot !== bootId || !Number.isSafeInteger(read)) return undefined;
  return text === lineOf(bootId, read).toString("latin1") ? read : undefined;
}

const markBytes = 256;

/** Always of one length, so that one line overwrites the other. */
function lineOf(bootId: string, commits: number): Buffer {
  const text = `podnet-commits ${bootId} ${String(commits).padStart(16, "0")}`;
  const sum = hash("sha256", text).slice(0, 16);
  return Buffer.from(`${text} ${sum}\n`, "latin1");
}
