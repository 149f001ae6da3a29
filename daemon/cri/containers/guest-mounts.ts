import { createHash } from "node:crypto";
import {
  closeSync,
  constants,
  fstatSync,
  opendirSync,
  openSync,
  readlinkSync,
  readSync,
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
import type { SharePlan } from "../../../hypervisor/driver.ts";
import { type Mount, MountPropagation } from "../gen/cri_pb.ts";
import { writablePaths } from "../writable-paths.ts";

/** What is copied of the host for one container. */
const most = { files: 256, fileBytes: 512 * 1024, bytes: 8 * 1024 * 1024, depth: 8 } as const;

/** Files that containers may write to: what they write stays with them. */
const ownCopies = ["/etc/hosts", "/etc/hostname", "/etc/resolv.conf"];

/** A copy of a file, made now. */
type CopiedFile = Omit<ContainerFile, "id">;
/** A directory in the guest's memory. */
type GuestDirectory = Omit<ContainerVolume, "id">;

/** What a mount of the host is in a container in a machine. */
export type GuestMount = CopiedFile | GuestDirectory;

/**
 * What is laid into a container for mounts of the host, in this order. `within` are the directories
 * that may be copied from; `writable` are further paths that the container may write to; `shares`
 * are those of its machine, of which it gets what there is, live. Throws
 * `UNSUPPORTED` for what cannot be a copy, `PERMISSION_DENIED`, `LIMIT_REACHED`.
 */
export function guestMounts(
  mounts: readonly Mount[],
  within: readonly string[],
  writable: readonly string[],
  shares: readonly SharePlan[] = [],
): GuestMount[] {
  const copies = new Copies();
  return mounts
    .map((mount, i) => ({ mount, field: `config.mounts[${i}]` }))
    .map(({ mount, field }) => ({ mount, field, target: targetOf(mount, field) }))
    .toSorted((a, b) => depthOf(a.target) - depthOf(b.target))
    .flatMap(({ mount, field, target }) => {
      const { hostPath, readonly } = mount;
      if (mount.image !== undefined) throw cannot("mount an image as a volume", `${field}.image`);
      if (mount.uidMappings.length + mount.gidMappings.length > 0)
        throw cannot("give files of a mount other owners", `${field}.uid_mappings`);
      if (mount.propagation !== MountPropagation.PROPAGATION_PRIVATE)
        throw cannot("propagate mounts between host and container", field);
      const pathField = `${field}.host_path`;
      const live = liveOf(realOf(hostPath, pathField), target, readonly, shares);
      if (live !== undefined) return [live];
      const source = sourceOf(hostPath, { within, setting: "cri.mount_paths", field: pathField });
      const shared = sharedDirectory(source, target, readonly);
      if (shared !== undefined) return [shared];
      const own = [...ownCopies, ...writable].includes(target);
      const copied = copies.of(source, source, target, readonly || !own, field, 0);
      const isFile = copied.every((each) => "data" in each);
      if (!readonly && !(own && isFile)) throw notWritable(hostPath, field);
      return copied;
    });
}

/**
 * The file of the host that is mounted at a path to be written to; undefined when there is none.
 * Throws as `guestMounts` does.
 */
export function messageFileOf(
  mounts: readonly Mount[],
  path: string,
  within: readonly string[],
): string | undefined {
  const i = mounts.findIndex(
    (mount, at) => !mount.readonly && targetOf(mount, `config.mounts[${at}]`) === path,
  );
  const field = `config.mounts[${i}].host_path`;
  const found = mounts[i];
  if (found === undefined) return undefined;
  return sourceOf(found.hostPath, { within, setting: "cri.mount_paths", field });
}

/** What of the host may be copied, by which setting, and the field that asks for it. */
interface Allowed {
  readonly within: readonly string[];
  readonly setting: string;
  readonly field: string;
}

/**
 * Read-only copies of files and directories of the host, made now, as one container has them.
 * Throws as `guestMounts` does.
 */
export function hostCopies(
  sources: readonly {
    readonly hostPath: string;
    readonly target: string;
    readonly field: string;
  }[],
  allowed: Omit<Allowed, "field">,
): GuestMount[] {
  const copies = new Copies();
  return sources
    .toSorted((a, b) => depthOf(a.target) - depthOf(b.target))
    .flatMap(({ hostPath, target, field }) => {
      const source = sourceOf(hostPath, { ...allowed, field });
      return copies.of(source, source, target, true, field, 0);
    });
}

/** A path that may be copied from. Throws `INVALID_ARGUMENT`, `PERMISSION_DENIED`. */
function sourceOf(hostPath: string, { within, setting, field }: Allowed): string {
  const source = realOf(hostPath, field);
  if (within.some((directory) => isIn(source, directory))) return source;
  throw new PodnetError(
    "PERMISSION_DENIED",
    `"${printable(hostPath)}" of the host cannot be in a container`,
    { field, hint: `Files are copied from the directories in ${setting} alone` },
  );
}

/** A mount below another one comes after it. */
const depthOf = (path: string): number => path.split("/").length;

function targetOf({ containerPath }: Mount, field: string): string {
  const target = normalize(containerPath).replace(/(.)\/$/, "$1");
  if (isAbsolute(target) && target !== "/" && !target.includes("\0")) return target;
  throw new PodnetError(
    "INVALID_ARGUMENT",
    `"${printable(containerPath)}" is not a path in a container`,
    { field: `${field}.container_path`, hint: "Give an absolute path other than /" },
  );
}

/**
 * Kubernetes' emptyDir: containers share it by the host's path, which means one directory in their
 * machine. Undefined for anything else: an empty directory may be that of a volume whose data must
 * reach the host.
 */
function sharedDirectory(
  source: string,
  path: string,
  readOnly: boolean,
): GuestDirectory | undefined {
  if (!/\/volumes\/kubernetes\.io~empty-dir\/[^/]+$/.test(source)) return undefined;
  const { mode, uid, gid } = perform("file", "look at mount", () => statSync(source));
  if (namesIn(source, 1).length > 0) return undefined;
  const hash = createHash("sha256").update(source).digest("hex");
  return { path, volume: hash.slice(0, 32), readOnly, mode: mode & 0o7777, uid, gid };
}

/** What of a share of the machine is at a path of the host; undefined when none has it. */
function liveOf(
  source: string,
  path: string,
  readOnly: boolean,
  shares: readonly SharePlan[],
): GuestDirectory | undefined {
  const share = shares.find((each) => isIn(source, each.path));
  if (share === undefined) return undefined;
  const below = relative(share.path, source);
  return { path, share: { at: share.at, below }, readOnly, mode: 0, uid: 0, gid: 0 };
}

const notWritable = (hostPath: string, field: string): PodnetError =>
  new PodnetError(
    "UNSUPPORTED",
    `podnet cannot let a container write to "${printable(hostPath)}" of the host, which its machine does not share`,
    {
      field,
      hint: `Name it in the pod's annotation ${writablePaths}; see docs/how-to/kubernetes-node.md`,
    },
  );

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
      field,
      hint: "Give an absolute path of a file or directory",
      cause,
    });
  }
}

/** The copies for one container, within their bounds: those of the guest's memory and podnetd's. */
class Copies {
  #files = 0;
  #bytes = 0;

  /**
   * A file, or a directory and all that is in it. Links are followed as long as they stay in the
   * mount.
   */
  of(
    path: string,
    top: string,
    target: string,
    readOnly: boolean,
    field: string,
    depth: number,
  ): GuestMount[] {
    const source = realOf(path, field);
    if (source !== top && !isIn(source, top))
      throw cannot(`follow a link out of "${printable(top)}"`, field);
    const { O_RDONLY, O_NONBLOCK, O_NOFOLLOW } = constants;
    const fd = perform("file", "open mount", () =>
      openSync(source, O_RDONLY | O_NONBLOCK | O_NOFOLLOW),
    );
    let directory: GuestDirectory;
    try {
      // Who owns a directory may have put a link in its place since it was looked at.
      const opened = perform("file", "look at mount", () => readlinkSync(`/proc/self/fd/${fd}`));
      if (opened !== source) throw cannot(`follow "${printable(source)}", which has moved`, field);
      const stat = fstatSync(fd);
      const { uid, gid, mode } = stat;
      this.#count(stat.isFile() ? stat.size : 0, field, source);
      if (stat.isFile()) {
        const data = Buffer.alloc(stat.size);
        const length = perform("file", "read mount", () => readSync(fd, data, 0, data.length, 0));
        return [
          { path: target, mode: mode & 0o777, uid, gid, readOnly, data: data.subarray(0, length) },
        ];
      }
      if (!stat.isDirectory() || depth === most.depth)
        throw cannot(`mount "${printable(source)}", which is neither file nor directory`, field);
      directory = { path: target, mode: mode & 0o7777, uid, gid, readOnly };
    } finally {
      closeSync(fd);
    }
    const content = namesIn(source, 2 * most.files)
      // Kubernetes' writer of volumes keeps its versions in names that begin so.
      .filter((name) => !name.startsWith(".."))
      .flatMap((name) =>
        this.of(join(source, name), top, `${target}/${name}`, readOnly, field, depth + 1),
      );
    // One below is in the first one, whose content hides that of the image.
    return depth === 0 ? [directory, ...content] : content;
  }

  #count(bytes: number, field: string, source: string): void {
    if (bytes > most.fileBytes)
      throw new PodnetError("LIMIT_REACHED", `"${printable(source)}" has ${bytes} bytes`, {
        field,
        hint: `Files of at most ${most.fileBytes} bytes are copied`,
      });
    this.#files++;
    this.#bytes += bytes;
    if (this.#files > most.files || this.#bytes > most.bytes)
      throw new PodnetError("LIMIT_REACHED", "The mounts have too many files, or too large ones", {
        field,
        hint: `Use at most ${most.files} files and ${most.bytes} bytes`,
      });
  }
}

/** The first names in a directory. */
function namesIn(path: string, limit: number): string[] {
  const directory = perform("file", "open directory of mount", () => opendirSync(path));
  try {
    const names: string[] = [];
    while (names.length < limit) {
      const entry = directory.readSync();
      if (entry === null) break;
      names.push(entry.name);
    }
    return names;
  } finally {
    directory.closeSync();
  }
}
