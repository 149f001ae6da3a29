import { chmodSync, renameSync, statSync } from "node:fs";
import { join } from "node:path";
import { abortError } from "../../core/aborting.ts";
import { perform } from "../../core/effect.ts";
import { PodnetError } from "../../core/errors.ts";
import { printable } from "../../core/names.ts";
import type { CgroupPlan, ProcessRecord } from "../../hypervisor/driver.ts";
import { treePlace } from "../../hypervisor/jail/argv.ts";
import { ranOutOfMemory } from "../../hypervisor/jail/cgroup.ts";
import { startWorker, type Worker } from "../../hypervisor/process/worker-program.ts";
import { findProgram } from "../../linux/processes/command.ts";
import { takeFile } from "./job-directory.ts";
import { outOfMemory, type WorkerHost } from "./run-worker.ts";
import { roomMissing } from "./no-room.ts";

export interface Packing {
  readonly host: WorkerHost;
  /** A directory where the program writes: `makeJobDirectory`. */
  readonly directory: string;
  readonly cgroups: readonly CgroupPlan[];
  /** Bytes that the archive may have. */
  readonly mostBytes: number;
  readonly started: (worker: ProcessRecord) => void;
  readonly signal: AbortSignal;
}

const archive = "source.tar";
/** What tar writes at a time. */
const blockBytes = 20 * 512;
const openFiles = 256;
const processes = 16;

/** GNU tar's, for all that a file system has. */
const words = [
  ..."--numeric-owner --format=pax --xattrs --xattrs-include=* --sparse".split(" "),
  "--warning=no-file-ignored",
] as const;
/** Where it is not confined, and sees what is mounted below. */
const unconfinedWords = ["--one-file-system", "--warning=no-xdev"] as const;

/**
 * Makes an archive of a directory by tar, confined as the program that reads the archive later: a
 * user of its own, no network, limits; of the host's files it sees the directory alone, and may
 * read all that podnetd may. Its processes have ended when this returns.
 *
 * Throws `IMAGE_UNREADABLE`, `LIMIT_REACHED`, `STATE_UNWRITABLE`, `CANCELLED`, `JAIL_FAILED`,
 * `COMMAND_FAILED`.
 */
export async function packDirectory(from: string, to: string, packing: Packing): Promise<void> {
  const { host, directory, cgroups, mostBytes, started, signal } = packing;
  const { jail } = host;
  const tar = findProgram("tar");
  if (tar === undefined)
    throw new PodnetError("COMMAND_FAILED", 'The command "tar" is not installed', {
      hint: "Install the package tar",
    });
  // `--` and a path of its own: what a caller writes is no option.
  const place = ["-cf", archive, "-C", jail === undefined ? from : treePlace, "--", "."];
  const worker = await startWorker({
    name: "tar",
    argv: [tar, ...words, ...(jail === undefined ? unconfinedWords : []), ...place],
    directory,
    fds: [],
    fileBytes: mostBytes,
    jail:
      jail === undefined
        ? undefined
        : {
            uid: jail.uid,
            files: [],
            openFiles,
            network: false,
            processes,
            cgroups,
            tree: from,
          },
  });
  const { how, said } = await follow(worker, started, signal);
  if (signal.aborted) throw abortError(signal, "The work on the image");
  if (how !== "exit code 0") {
    if (ranOutOfMemory(cgroups)) throw outOfMemory(jail);
    throw failure(from, how, said, sizeOf(join(directory, archive)) + blockBytes > mostBytes);
  }
  perform("file", "take archive of directory", () => {
    const made = join(directory, archive);
    if (!takeFile(made)) throw new PodnetError("INTERNAL", "The command tar made no plain file");
    chmodSync(made, 0o600);
    renameSync(made, to);
  });
}

async function follow(
  worker: Worker,
  started: Packing["started"],
  signal: AbortSignal,
): ReturnType<typeof endOf> {
  const onAbort = (): void => worker.kill();
  signal.addEventListener("abort", onAbort, { once: true });
  try {
    started(worker.record);
    if (signal.aborted) onAbort();
    return await endOf(worker);
  } catch (thrown) {
    worker.kill();
    await worker.ended;
    throw thrown;
  } finally {
    signal.removeEventListener("abort", onAbort);
  }
}

/** It says nothing on standard output, and reads nothing. */
function endOf({ input, output, ended }: Worker): Worker["ended"] {
  input.end();
  output.resume();
  return ended;
}

const sizeOf = (file: string): number => statSync(file, { throwIfNoEntry: false })?.size ?? 0;

/** A write that is cut short has met the limit of its file, or the end of the room. */
function failure(from: string, how: string, said: string, isAtLimit: boolean): PodnetError {
  const isCut = /Wrote only \d+ of/.test(said);
  if (how === "SIGXFSZ" || /File too large/i.test(said) || (isCut && isAtLimit))
    return new PodnetError("LIMIT_REACHED", "The directory is larger than images may be", {
      hint: "Raise images.image_max_mib",
      details: { said },
    });
  if (isCut || /No space left|quota exceeded/i.test(said)) return roomMissing();
  const [first = how] = said.split("\n");
  return new PodnetError(
    "IMAGE_UNREADABLE",
    `The directory "${printable(from)}" cannot be read whole: ${printable(first)}`,
    {
      field: "path",
      hint: "Let podnetd read all files in it, and let none change meanwhile; or send an archive: tar -C DIR -c . | podnet image import -",
      details: { said },
    },
  );
}
