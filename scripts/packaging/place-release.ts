import { mkdirSync, renameSync } from "node:fs";
import path from "node:path";
import { withTemporaryFile } from "../temporary-file.ts";

const directory = path.resolve(import.meta.dirname, "../../build/release");

/** What the builder of a package is given. */
export interface Release {
  readonly version: string;
  /** Directory that the package is written to. */
  readonly into: string;
}

/**
 * Has the files of a release made in a directory of their own, and moves them to build/release when
 * all are complete. Resolves to where they are.
 */
export async function placeRelease(
  make: (into: string) => Promise<readonly string[]>,
): Promise<string[]> {
  const placed: string[] = [];
  await withTemporaryFile(directory, async (temporary) => {
    const files = await make(temporary);
    mkdirSync(directory, { recursive: true });
    for (const file of files) {
      const place = path.join(directory, path.basename(file));
      renameSync(file, place);
      placed.push(place);
    }
  });
  return placed;
}
