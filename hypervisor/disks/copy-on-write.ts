import {
  closeSync,
  constants,
  existsSync,
  fsyncSync,
  ftruncateSync,
  openSync,
  readdirSync,
  writeSync,
} from "node:fs";
import { mkdir, rm, rmdir, unlink } from "node:fs/promises";
import { dirname, join } from "node:path";
import { perform, performAsync } from "../../core/effect.ts";
import { toPodnetError } from "../../core/errors.ts";
import { parsePodId, type PodId } from "../../core/names.ts";
import { run } from "../../linux/processes/command.ts";
import { fileError } from "../../linux/syscall-error.ts";
import type { OverlayPlan, VmPlan } from "../driver.ts";
import { emptyQcow2 } from "./qcow2-copy.ts";

type Disks = Pick<VmPlan, "disks">;

/** The files of a pod's own that its disks write to. */
export const ownFilesOf = ({ disks }: Disks): string[] =>
  disks.flatMap(({ path, overlay, layer }) => {
    if (overlay !== undefined) return [overlay.path];
    return layer === undefined ? [] : [path];
  });

/**
 * Makes them, empty; what was there of an earlier attempt goes. They are podnetd's: QEMU gets them
 * opened.
 */
export async function makeOwnFiles({ disks }: Disks): Promise<void> {
  for (const { path, overlay, layer } of disks) {
    if (overlay !== undefined) await makeOverlay(overlay);
    if (layer !== undefined) await makeLayer(path, layer.bytes);
  }
}

async function makeOverlay(overlay: OverlayPlan): Promise<void> {
  const { path } = overlay;
  try {
    const directory = dirname(path);
    await performAsync("file", "make overlay directory", () =>
      mkdir(directory, { recursive: true, mode: 0o700 }),
    );
    writeEmpty(overlay);
  } catch (error) {
    throw fileError(error, `Cannot make the pod's own file "${path}"`, roomHint(error));
  }
}

/**
 * Makes an empty disk with a file system. podnetd writes one, and never reads one that a guest had.
 */
async function makeLayer(path: string, bytes: number): Promise<void> {
  await makeEmptyDisk(path, bytes);
  // The guest fills in tables. Without a file of defaults its own count, whatever the host's are.
  const options = "lazy_itable_init=1,lazy_journal_init=1,nodiscard,root_owner=0:0";
  await run(["mke2fs", "-q", "-t", "ext4", "-b", "4096", "-m", "0", "-E", options, path], {
    env: { MKE2FS_CONFIG: "/proc/none" },
  }).catch((thrown: unknown) => {
    throw toPodnetError(thrown).with({
      hint: "podnetd needs mke2fs of e2fsprogs, and room in disks_dir",
    });
  });
}

const roomHint = (error: unknown): { readonly hint?: string } =>
  (error as NodeJS.ErrnoException).code === "ENOSPC"
    ? { hint: "The filesystem of disks_dir is full: make room there" }
    : {};

/**
 * A bounded one is as long as it may become, and takes as little: QEMU's raw driver bounds no file
 * that is shorter.
 */
function writeEmpty({ path, bytes, maxBytes }: OverlayPlan): void {
  const { O_RDWR, O_CREAT, O_TRUNC, O_NOFOLLOW } = constants;
  const { pieces, length } = emptyQcow2(bytes);
  const fd = perform("file", "make overlay", () =>
    openSync(path, O_RDWR | O_CREAT | O_TRUNC | O_NOFOLLOW, 0o600),
  );
  try {
    perform("file", "write overlay", () => {
      for (const { at, data } of pieces) writeSync(fd, data, 0, data.length, at);
      ftruncateSync(fd, Math.max(length, maxBytes ?? 0));
      fsyncSync(fd);
    });
  } finally {
    closeSync(fd);
  }
}

/**
 * Removes them, with what the pod wrote, and their directory when nothing else is in it. Absent
 * means success.
 */
export const removeOwnFilesOf = (plan: Disks): Promise<void> => removeOwnFiles(ownFilesOf(plan));

/** As above, of files of the pod's own that are named. */
export async function removeOwnFiles(paths: readonly string[]): Promise<void> {
  for (const path of paths)
    await performAsync("file", "remove overlay", () => unlink(path)).catch(
      unless(["ENOENT"], path),
    );
  for (const directory of new Set(paths.map((path) => dirname(path))))
    await performAsync("file", "remove overlay directory", () => rmdir(directory)).catch(
      unless(["ENOENT", "ENOTEMPTY"], directory),
    );
}

/**
 * Makes an empty disk of the pod's own, which takes room as it is written to; what was there of an
 * earlier attempt goes.
 */
export async function makeEmptyDisk(path: string, bytes: number): Promise<void> {
  const { O_WRONLY, O_CREAT, O_TRUNC, O_NOFOLLOW } = constants;
  try {
    await performAsync("file", "make overlay directory", () =>
      mkdir(dirname(path), { recursive: true, mode: 0o700 }),
    );
    const fd = perform("file", "make overlay", () =>
      openSync(path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW, 0o600),
    );
    try {
      perform("file", "write overlay", () => {
        ftruncateSync(fd, bytes);
        fsyncSync(fd);
      });
    } finally {
      closeSync(fd);
    }
  } catch (error) {
    throw fileError(error, `Cannot make the pod's disk "${path}"`, roomHint(error));
  }
}

/** The directories of `directory`, in which each pod has its own, by the pod's id. */
export const overlayDirectories = (directory: string): PodId[] =>
  existsSync(directory) ? readdirSync(directory).flatMap(podIdOf) : [];

/** A filesystem's own directory, and what else lies there, is not podnet's. */
function podIdOf(name: string): PodId[] {
  try {
    return [parsePodId(name)];
  } catch {
    return [];
  }
}

/** Removes copy-on-write disks of pods that have no record. */
export async function removeLeftOverlays(directory: string): Promise<void> {
  for (const podId of overlayDirectories(directory)) await removeOverlaysOf(directory, podId);
}

/** Removes all that one pod wrote, whatever its plan says. Absent means success. */
export async function removeOverlaysOf(directory: string, podId: PodId): Promise<void> {
  const path = join(directory, podId);
  await performAsync("file", "remove left overlays", () =>
    rm(path, { recursive: true, force: true }),
  ).catch(unless([], path));
}

function unless(codes: readonly string[], path: string): (error: unknown) => void {
  return (error) => {
    const { code = "" } = error as NodeJS.ErrnoException;
    if (!codes.includes(code)) throw fileError(error, `Cannot remove "${path}"`);
  };
}
