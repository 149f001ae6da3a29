import { createHash } from "node:crypto";
import {
  closeSync,
  constants,
  fstatSync,
  openSync,
  readdirSync,
  readFileSync,
  realpathSync,
  statSync,
} from "node:fs";
import { isAbsolute, join, normalize, relative } from "node:path";
import { PodnetError } from "../../../core/errors.ts";
import { perform } from "../../../core/effect.ts";
import { printable } from "../../../core/names.ts";
import type {
  ContainerFile,
  ContainerVolume,
} from "../../../guest-init/protocol/container-messages.ts";
import { type Mount, MountPropagation } from "../gen/cri_pb.ts";

/** What is copied of the host for one container. */
const most = { files: 256, fileBytes: 512 * 1024, bytes: 8 * 1024 * 1024, depth: 8 } as const;

/** Files that containers may write to: what they write stays with them. */
const ownCopies = ["/etc/hosts", "/etc/hostname", "/etc/resolv.conf"];

type CopiedFile = Omit<ContainerFile, "id">;
type SharedVolume = Omit<ContainerVolume, "id">;

/** What mounts of the host are for a container in a machine. */
export interface GuestMounts {
  /** Copies, made now. */
  readonly files: readonly CopiedFile[];
  /** Directories in the guest's memory, in the place of empty ones of the host. */
  readonly volumes: readonly SharedVolume[];
}

/**
 * What is laid into a container for mounts of the host. `within` are the
 * directories that may be copied from; `writable` are further paths that the container may write
 * to. Throws `UNSUPPORTED` for what cannot be a copy, `PERMISSION_DENIED`.
 */
export function guestMounts(
  mounts: readonly Mount[],
  within: readonly string[],
  writable: readonly string[],
): GuestMounts {
  const files: CopiedFile[] = [];
  const volumes: SharedVolume[] = [];
  mounts.forEach((mount, i) => {
    const field = `config.mounts[${i}]`;
    const { containerPath, hostPath, readonly } = mount;
    if (mount.propagation !== MountPropagation.PROPAGATION_PRIVATE)
      throw cannot("propagate mounts between host and container", field);
    const target = normalize(containerPath).replace(/(.)\/$/, "$1");
    if (!isAbsolute(target) || target === "/")
      throw new PodnetError(
        "INVALID_ARGUMENT",
        `"${printable(containerPath)}" is not a path in a container`,
        { field: `${field}.container_path`, hint: "Give an absolute path other than /" },
      );
    const source = realOf(hostPath, field);
    if (!within.some((directory) => isIn(source, directory)))
      throw new PodnetError(
        "PERMISSION_DENIED",
        `"${printable(hostPath)}" of the host cannot be in a container`,
        {
          field: `${field}.host_path`,
          hint: "Files are copied from the directories in cri.mount_paths alone",
        },
      );
    const volume = volumeOf(source, target, readonly);
    if (volume !== undefined) {
      volumes.push(volume);
      return;
    }
    const own = [...ownCopies, ...writable].includes(target);
    const copied = copy(source, source, target, readonly || !own, field, 0);
    const isFile = copied.length === 1 && copied[0]?.path === target;
    if (!readonly && !(own && isFile))
      throw cannot(`let a container write to "${printable(hostPath)}" of the host`, field);
    files.push(...copied);
  });
  const bytes = files.reduce((sum, { data }) => sum + data.length, 0);
  if (files.length > most.files || bytes > most.bytes)
    throw new PodnetError(
      "LIMIT_REACHED",
      `Mounts of ${files.length} files and ${bytes} bytes are too many`,
      {
        field: "config.mounts",
        hint: `Use at most ${most.files} files and ${most.bytes} bytes`,
      },
    );
  return { files, volumes };
}

/**
 * An empty directory is one that containers share, such as Kubernetes' emptyDir: by the host's path
 * they all mean one in their machine. Undefined for anything else.
 */
function volumeOf(source: string, path: string, readOnly: boolean): SharedVolume | undefined {
  const { mode, uid, gid } = perform("file", "look at mount", () => statSync(source));
  // Part of another volume, whose content is in the guest.
  if ((mode & constants.S_IFMT) !== constants.S_IFDIR || source.includes("/volume-subpaths/"))
    return undefined;
  if (perform("file", "list mount", () => readdirSync(source)).length > 0) return undefined;
  const hash = createHash("sha256").update(source).digest("hex");
  return { path, volume: hash.slice(0, 32), readOnly, mode: mode & 0o7777, uid, gid };
}

const cannot = (what: string, field: string): PodnetError =>
  new PodnetError("UNSUPPORTED", `podnet cannot ${what}: it gives machines copies of files`, {
    field,
    hint: "Mount configuration read-only; see docs/reference/cri.md for what can be mounted",
  });

const isIn = (path: string, directory: string): boolean => {
  const from = relative(realOrSame(directory), path);
  return from !== ".." && !from.startsWith("../") && !isAbsolute(from);
};

function realOrSame(path: string): string {
  try {
    return realpathSync(path);
  } catch {
    return path;
  }
}

function realOf(path: string, field: string): string {
  try {
    if (!isAbsolute(path)) throw new Error("not absolute");
    return perform("file", "look at mount", () => realpathSync(path));
  } catch (cause) {
    throw new PodnetError("INVALID_ARGUMENT", `There is no "${printable(path)}" on the host`, {
      field: `${field}.host_path`,
      hint: "Give an absolute path of a file or directory",
      cause,
    });
  }
}

/** A file, or all files of a directory. Links are followed as long as they stay in the mount. */
function copy(
  path: string,
  top: string,
  target: string,
  readOnly: boolean,
  field: string,
  depth: number,
): CopiedFile[] {
  const source = realOf(path, field);
  if (source !== top && !isIn(source, top))
    throw cannot(`follow a link out of "${printable(top)}"`, field);
  const { O_RDONLY, O_NONBLOCK, O_NOFOLLOW } = constants;
  const fd = perform("file", "open mount", () =>
    openSync(source, O_RDONLY | O_NONBLOCK | O_NOFOLLOW),
  );
  try {
    const stat = fstatSync(fd);
    if (stat.isFile()) {
      if (stat.size > most.fileBytes)
        throw new PodnetError("LIMIT_REACHED", `"${printable(source)}" has ${stat.size} bytes`, {
          field,
          hint: `Files of at most ${most.fileBytes} bytes are copied`,
        });
      const data = perform("file", "read mount", () => readFileSync(fd));
      return [{ path: target, mode: stat.mode & 0o777, readOnly, data }];
    }
    if (!stat.isDirectory() || depth === most.depth)
      throw cannot(`mount "${printable(source)}", which is neither file nor directory`, field);
  } finally {
    closeSync(fd);
  }
  // Kubernetes' writer of volumes keeps its versions in names that begin so.
  return perform("file", "list mount", () => readdirSync(source))
    .filter((name) => !name.startsWith(".."))
    .flatMap((name) =>
      copy(join(source, name), top, `${target}/${name}`, readOnly, field, depth + 1),
    );
}
