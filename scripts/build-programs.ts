/**
 * Makes one file of all of podnetd's sources and packages, and one of podnet's: Node finds, reads
 * and links one module where there are 1,200, which is half of a start. Why so:
 * docs/decisions/0054-one-file-to-start.md.
 */
import { mkdirSync, renameSync, rmSync, utimesSync } from "node:fs";
import path from "node:path";
import { bundle, bundlePage, bundleSnapshot, programs } from "./bundle.ts";
import { complainAndFail } from "./complain.ts";
import { withTemporaryFile } from "./temporary-file.ts";

const runsIn = "build/programs";
const directory = path.resolve(import.meta.dirname, "..", runsIn);

async function buildInto(temporary: string): Promise<void> {
  // Taken before the first source is read: what changes meanwhile is newer than what is made.
  const begun = new Date();
  await bundle({ entryPoints: programs, outdir: temporary, runsIn, ending: ".mjs" });
  await bundlePage(path.join(temporary, "ui"));
  await bundleSnapshot(temporary, process.execPath);
  mkdirSync(directory, { recursive: true });
  rmSync(path.join(directory, "ui"), { recursive: true, force: true });
  renameSync(path.join(temporary, "ui"), path.join(directory, "ui"));
  // The snapshot first: what is newer than podnet.mjs is newer than it.
  for (const name of ["podnet.blob", ...Object.keys(programs).map((each) => `${each}.mjs`)]) {
    utimesSync(path.join(temporary, name), begun, begun);
    renameSync(path.join(temporary, name), path.join(directory, name));
  }
}

try {
  await withTemporaryFile(directory, buildInto);
} catch (thrown) {
  complainAndFail("build-programs", thrown);
}
