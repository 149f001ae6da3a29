import { closeSync, mkdirSync, openSync, rmSync, statfsSync, statSync, writeSync } from "node:fs";
import { randomFillSync } from "node:crypto";
import { join } from "node:path";
import { perform } from "../../core/effect.ts";
import type { Log } from "../../linux/log.ts";

/**
 * The most that is reserved, bytes: SQLite's log grows to 4 MiB before it is copied into the
 * database and used anew, so that any number of deletes fits in twice that.
 */
const mostBytes = 8 * 2 ** 20;
/** Largest part of a small filesystem that the reserve takes. */
const largestPart = 1 / 16;
/** So many files, because a filesystem runs out of inodes too. */
const files = 16;
/**
 * The reserve is made again when this multiple of its size is free: it must not take the last room
 * itself.
 */
const roomFactor = 2;

/**
 * Room in the state directory that is given back to the filesystem when it is full, so that pods
 * can still be deleted, stopped and started. While the reserve is not whole, nothing new is taken
 * on.
 */
export class Reserve {
  readonly #directory: string;
  readonly #bytes: number;
  readonly #log: Log | undefined;
  #whole = false;

  private constructor(stateDir: string, log: Log | undefined) {
    this.#directory = join(stateDir, "reserve");
    this.#log = log;
    const { blocks, bsize } = statfsSync(stateDir);
    const share = Math.min(mostBytes, blocks * bsize * largestPart);
    this.#bytes = Math.max(1, Math.floor(share / files / 4096)) * 4096 * files;
  }

  /**
   * Finds the reserve of a state directory, or makes it where there is room. Throws only what
   * statfs(2) does.
   */
  static open(stateDir: string, log?: Log): Reserve {
    const reserve = new Reserve(stateDir, log);
    if (reserve.#isThere()) reserve.#whole = true;
    else reserve.make();
    if (!reserve.#whole)
      log?.warn(
        { directory: stateDir, needed_bytes: reserve.neededBytes },
        "The state directory is nearly full: podnetd takes on nothing new until there is room",
      );
    return reserve;
  }

  /** Whether the reserve is there: then new work may be taken on. */
  get whole(): boolean {
    return this.#whole;
  }

  /** Bytes that must be free before the reserve is made again. */
  get neededBytes(): number {
    return roomFactor * this.#bytes;
  }

  /** Gives the room back to the filesystem. False when there was nothing to give. */
  release(): boolean {
    if (!this.#isPartlyThere()) return false;
    this.#whole = false;
    this.#remove();
    this.#log?.warn(
      { directory: this.#directory },
      "The state directory is full: its reserve is released, and nothing new is taken on until there is room",
    );
    return true;
  }

  /** Makes the reserve where there is room for more than it. Answers whether it is there now. */
  make(): boolean {
    if (this.#whole) return true;
    try {
      if (!this.#hasRoom()) return false;
      this.#write();
      this.#whole = true;
    } catch (err) {
      this.#log?.warn({ err }, "Cannot make the state directory's reserve");
      this.#remove();
    }
    return this.#whole;
  }

  #hasRoom(): boolean {
    const { bavail, bsize, ffree, files: all } = statfsSync(join(this.#directory, ".."));
    // Filesystems without a table of inodes report 0 inodes.
    const inodes = all === 0 || ffree >= roomFactor * (files + 1);
    return inodes && bavail * bsize >= this.neededBytes;
  }

  /** Random, so that a filesystem that compresses reserves as much. */
  #write(): void {
    const piece = randomFillSync(Buffer.alloc(this.#bytes / files));
    perform("file", "make reserve", () => {
      mkdirSync(this.#directory, { recursive: true, mode: 0o700 });
      for (const path of this.#paths()) {
        const fd = openSync(path, "w", 0o600);
        try {
          for (let at = 0; at < piece.length; ) at += writeSync(fd, piece, at);
        } finally {
          closeSync(fd);
        }
      }
    });
  }

  #remove(): void {
    try {
      perform("file", "release reserve", () =>
        rmSync(this.#directory, { recursive: true, force: true }),
      );
    } catch (err) {
      this.#log?.warn({ err }, "Cannot release the state directory's reserve");
    }
  }

  #isThere(): boolean {
    return this.#paths().every((path) => sizeOf(path) === this.#bytes / files);
  }

  #isPartlyThere(): boolean {
    return this.#paths().some((path) => sizeOf(path) !== undefined);
  }

  #paths(): string[] {
    return Array.from({ length: files }, (_, i) => join(this.#directory, `${i}`));
  }
}

function sizeOf(path: string): number | undefined {
  return statSync(path, { throwIfNoEntry: false })?.size;
}
