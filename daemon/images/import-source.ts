import { closeSync, constants, fstatSync, lstatSync, openSync, readdirSync } from "node:fs";
import { open } from "node:fs/promises";
import { join } from "node:path";
import { performAsync } from "../../core/effect.ts";
import { PodnetError } from "../../core/errors.ts";
import { printable } from "../../core/names.ts";
import { noImage } from "../../images/archive/recognize.ts";
import type { StageProgress } from "../../images/worker/messages.ts";
import { noRoom } from "./no-room.ts";
import { packDirectory, type Packing } from "./pack-directory.ts";

/** Where an import comes from: a file or directory of the host, or what a caller sends. */
export type ImportSource =
  | { readonly path: string }
  | { readonly upload: AsyncIterable<Uint8Array> };

/** Bytes of an archive that are neither files nor names. */
const archiveOverhead = 2 ** 31;

export interface Opening {
  /** Where a directory or an upload becomes an archive first: a path of the job's own. */
  readonly copy: string;
  /** Of the image. */
  readonly mostBytes: number;
  readonly report: (progress: StageProgress) => void;
  /** Of a directory. */
  readonly packing: Omit<Packing, "mostBytes">;
}

/**
 * A descriptor of the archive that an import is of. Throws `IMAGE_MISSING`, `LIMIT_REACHED`,
 * `STATE_UNWRITABLE`, `COMMAND_FAILED`, `IMAGE_UNREADABLE`, `CANCELLED`.
 */
export async function openSource(source: ImportSource, opening: Opening): Promise<number> {
  const { copy, mostBytes, packing } = opening;
  if ("upload" in source) await receive(source.upload, opening);
  else {
    const fd = openGiven(source.path);
    if (fd !== undefined) return fd;
    refuseNoRoot(source.path);
    await packDirectory(source.path, copy, { ...packing, mostBytes: mostBytes + archiveOverhead });
  }
  return openSync(copy, constants.O_RDONLY | constants.O_NOFOLLOW);
}

async function receive(
  upload: AsyncIterable<Uint8Array>,
  { copy, mostBytes, report }: Opening,
): Promise<void> {
  const most = mostBytes + archiveOverhead;
  await performAsync("file", "receive image", async () => {
    await using file = await open(copy, "wx", 0o600);
    let done = 0;
    for await (const part of upload) {
      done += part.length;
      if (done > most)
        throw new PodnetError("LIMIT_REACHED", "The archive is larger than images may be", {
          hint: "Raise images.image_max_mib",
        });
      await file.write(part).catch((thrown: unknown) => {
        throw noRoom(thrown);
      });
      report({ stage: "fetching", done, all: 0 });
    }
  });
}

/** Directories that a root directory has some of (Filesystem Hierarchy Standard). */
const rootNames = "bin sbin usr lib lib64 etc opt srv var".split(" ");

/**
 * Refuses a directory that is neither an OCI layout nor a root directory, such as one of archives
 * or a user's home. One whose top has a program is a root directory, too.
 */
function refuseNoRoot(directory: string): void {
  const entries = readdirSync(directory, { withFileTypes: true });
  const names = entries.map(({ name }) => name);
  if (names.includes("index.json") || names.includes("manifest.json")) return;
  if (names.includes("oci-layout"))
    throw noImage("an OCI layout without its index.json", "Copy it whole", "The directory");
  const isRoot = entries.some(
    (entry) =>
      rootNames.includes(entry.name) ||
      (entry.isFile() && (lstatSync(join(directory, entry.name)).mode & 0o111) !== 0),
  );
  if (isRoot) return;
  const what = names.length === 0 ? "empty" : "neither an OCI layout nor a root directory";
  throw noImage(
    what,
    "Name the archive in it; or send its files as they are: tar -C DIR -c . | podnet image import -",
    "The directory",
  );
}

/** A regular file, open; undefined for a directory. Throws `IMAGE_MISSING`. */
function openGiven(path: string): number | undefined {
  const { O_RDONLY, O_NONBLOCK, O_NOCTTY } = constants;
  const missing = (why: string, cause?: unknown): PodnetError =>
    new PodnetError("IMAGE_MISSING", `There is no image at "${printable(path)}": ${why}`, {
      field: "path",
      hint: "Name an archive, an OCI layout or a root directory on podnetd's host",
      ...(cause === undefined ? {} : { cause }),
    });
  if (!path.startsWith("/")) throw missing("the path is not absolute");
  let fd: number;
  try {
    fd = openSync(path, O_RDONLY | O_NONBLOCK | O_NOCTTY);
  } catch (cause) {
    throw missing((cause as NodeJS.ErrnoException).code ?? "it cannot be opened", cause);
  }
  const found = fstatSync(fd);
  if (found.isFile()) return fd;
  closeSync(fd);
  if (found.isDirectory()) return undefined;
  throw missing("it is neither a file nor a directory");
}
