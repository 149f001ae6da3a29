import {
  chmodSync,
  linkSync,
  mkdirSync,
  readdirSync,
  renameSync,
  rmSync,
  statSync,
  utimesSync,
} from "node:fs";
import { join } from "node:path";
import { perform } from "../../core/effect.ts";
import type { Digest } from "../../images/archive/digest.ts";
import { blobName } from "../../images/registry/registry-files.ts";
import { takeFile } from "./job-directory.ts";

const blob = /^sha(?:256-[0-9a-f]{64}|512-[0-9a-f]{128})$/;

/**
 * Layers that were pulled, as they were sent, so that the next image with one of them does not
 * fetch it again. The directory is all there is to know: names are digests, and what reads a layer
 * compares it with its digest. Bounded; the least recently used go first.
 */
export class LayerCache {
  readonly #directory: string;
  readonly #mostBytes: number;

  constructor(directory: string, mostBytes: number) {
    this.#directory = directory;
    this.#mostBytes = mostBytes;
  }

  /** Puts the layers that are there into a worker's directory. Resolves to their digests. */
  lend(wanted: readonly Digest[], into: string): readonly Digest[] {
    return wanted.filter((digest) => {
      const file = join(this.#directory, blobName(digest));
      try {
        perform("file", "lend layer", () => {
          linkSync(file, join(into, blobName(digest)));
          utimesSync(file, new Date(), new Date());
        });
        return true;
      } catch {
        return false;
      }
    });
  }

  /** Keeps the layers that a worker, which has ended, has fetched. */
  keep(wanted: readonly Digest[], from: string): void {
    perform("file", "make layers directory", () =>
      mkdirSync(this.#directory, { recursive: true, mode: 0o700 }),
    );
    for (const digest of wanted) {
      const file = join(from, blobName(digest));
      perform("file", "keep layer", () => {
        if (!isTaken(file)) return;
        chmodSync(file, 0o444);
        renameSync(file, join(this.#directory, blobName(digest)));
      });
    }
    this.#shrink();
  }

  /** Forgets a layer that may be damaged. */
  drop(digest: Digest): void {
    perform("file", "drop layer", () =>
      rmSync(join(this.#directory, blobName(digest)), { force: true }),
    );
  }

  #shrink(): void {
    const files = readdirSync(this.#directory)
      .filter((name) => blob.test(name))
      .map((name) => {
        const { size, mtimeMs } = statSync(join(this.#directory, name));
        return { name, size, mtimeMs };
      })
      .toSorted((a, b) => b.mtimeMs - a.mtimeMs);
    let bytes = 0;
    for (const { name, size } of files) {
      bytes += size;
      if (bytes > this.#mostBytes)
        perform("file", "drop layer", () => rmSync(join(this.#directory, name), { force: true }));
    }
  }
}

/** Takes a layer from its worker; false if there is none, or no plain file. */
function isTaken(file: string): boolean {
  try {
    return takeFile(file);
  } catch {
    return false;
  }
}
