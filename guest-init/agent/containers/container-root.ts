import { PodnetError } from "../../../core/errors.ts";
import { encodeUtf8 } from "../../../core/utf8.ts";
import type {
  ContainerFile,
  ContainerVolume,
  CreateContainer,
} from "../../protocol/container-messages.ts";
import { noBytes } from "../../protocol/bytes.ts";
import { makeDirectories, readText, writeFile } from "../files.ts";
import { hostname } from "../machine.ts";
import { hostsText } from "../main-process/host-files.ts";
import { SysError, failedWith, openFlag, sys } from "../sys.ts";
import type { Accounts } from "../users.ts";

/**
 * The mount that has all containers' directories. It is in memory, and out of other users' reach: a
 * container lets go of it as a whole.
 */
export const shelf = "/run/podnet/containers";

/** What containers share; no id of one begins so. */
const volumes = `${shelf}/.volumes`;

/** Flags of mount(2). */
const flag = {
  readOnly: 1,
  nosuid: 2,
  nodev: 4,
  noexec: 8,
  remount: 32,
  bind: 4096,
  recursive: 16384,
} as const;

/** Devices of the guest that each container has. */
const devices = ["null", "zero", "full", "random", "urandom", "tty"] as const;
const deviceLinks = [
  ["/proc/self/fd", "fd"],
  ["/proc/self/fd/0", "stdin"],
  ["/proc/self/fd/1", "stdout"],
  ["/proc/self/fd/2", "stderr"],
  ["pts/ptmx", "ptmx"],
] as const;

type SharedPlace = NonNullable<ContainerVolume["share"]>;
type Owner = Pick<ContainerFile, "mode" | "uid" | "gid">;
const ofRoot: Owner = { mode: 0o644, uid: 0, gid: 0 };

const isDirectory = (mode = 0): boolean => (mode & 0o170000) === 0o040000;

/** By which another function of the kernel knows an open file. */
const byDescriptor = (fd: number): string => `/proc/self/fd/${fd}`;

const mountsOf = (pid: number): string => `/proc/${pid}/ns/mnt`;

/** Device of the disk with this serial number; undefined while there is none. */
export function findDisk(serial: string): string | undefined {
  const name = sys
    .readdir("/sys/block")
    .find((each) => readText(`/sys/block/${each}/serial`)?.trim() === serial);
  return name === undefined ? undefined : `/dev/${name}`;
}

/** Makes the mount of all containers' directories, once. */
export function openShelf(): void {
  if (readText("/proc/self/mounts")?.includes(` ${shelf} `) === true) return;
  makeDirectories(shelf);
  sys.mount("podnet", shelf, "tmpfs", flag.nosuid | flag.nodev, "mode=0700,size=1m");
  sys.mkdir(volumes, 0o700);
  sys.mount("podnet", volumes, "tmpfs", flag.nosuid | flag.nodev, "mode=0700,size=50%");
}

/**
 * The files of one container. Paths in it are those of an image, which may be foreign: they are
 * resolved as its own processes resolve them, so that no link leads out.
 */
export class ContainerRoot {
  readonly #directory: string;
  #files = 0;
  /** Where the files are that were laid over the image's, by their paths in the container. */
  readonly #laid = new Map<string, string>();
  /** Directories of its own that become read-only when all files are in them. */
  readonly #sealed: string[] = [];

  constructor(id: string) {
    this.#directory = `${shelf}/${id}`;
  }

  /** Where it is mounted. */
  get path(): string {
    return `${this.#directory}/root`;
  }

  get accounts(): Accounts {
    return {
      passwd: () => this.#read("/etc/passwd"),
      group: () => this.#read("/etc/group"),
    };
  }

  /** Mounts everything but /proc, which is of the processes. What failed half-way is undone. */
  make(disk: string, { addresses }: Pick<CreateContainer, "addresses">): void {
    const base = this.#directory;
    sys.mkdir(base, 0o700);
    try {
      // All that this container has of memory is in here: its writes, files and devices' names.
      sys.mount("podnet", base, "tmpfs", flag.nodev, "mode=0755,size=50%");
      for (const name of ["image", "upper", "work", "root", "files", "dev"])
        sys.mkdir(`${base}/${name}`);
      sys.mount(disk, `${base}/image`, "squashfs", flag.readOnly | flag.nodev, "");
      const layers = `lowerdir=${base}/image,upperdir=${base}/upper,workdir=${base}/work`;
      sys.mount("podnet", this.path, "overlay", flag.nodev, layers);
      this.#makeDevices();
      this.#mountAt("/dev", (at) =>
        sys.mount(`${base}/dev`, at, "", flag.bind | flag.recursive, ""),
      );
      const bare = flag.nosuid | flag.nodev | flag.noexec;
      this.#mountAt("/sys", (at) => sys.mount("sysfs", at, "sysfs", bare | flag.readOnly, ""));
      this.makeDirectories("/proc");
      const name = hostname();
      this.#layOver("/etc/hosts", encodeUtf8(hostsText(name, addresses)));
      this.#layOver("/etc/hostname", encodeUtf8(`${name}\n`));
      this.#layOver("/etc/resolv.conf", encodeUtf8(readText("/etc/resolv.conf") ?? ""));
    } catch (thrown) {
      this.remove();
      throw thrown;
    }
  }

  /** Lays a file over that of the image. */
  place({ path, readOnly, data, ...owner }: ContainerFile): void {
    this.#layOver(path, data, owner, readOnly);
  }

  /**
   * The beginning of a file that was laid, as it is now. The container can neither remove it nor
   * put a link in its place: something is mounted there.
   */
  beginning(path: string, limit: number): Uint8Array {
    const file = this.#laid.get(path);
    const bytes = new Uint8Array(limit);
    return file === undefined ? noBytes : bytes.slice(0, sys.readSmall(file, bytes));
  }

  /** Lays a directory over one of the image, or what a share has over what the image has. */
  share({ path, volume, share, readOnly, ...owner }: ContainerVolume): void {
    if (share !== undefined) {
      this.#layShared(path, share, readOnly);
      return;
    }
    const isOwn = volume === undefined;
    const directory = isOwn ? this.#newFile() : `${volumes}/${volume}`;
    if (sys.mode(directory) === undefined) {
      sys.mkdir(directory, 0o700);
      setOwner(directory, openFlag.read, owner);
    }
    this.makeDirectories(path);
    this.#layMount(path, directory, readOnly && !isOwn);
    if (readOnly && isOwn) this.#sealed.push(path);
  }

  /** All files are laid: from now on the container alone changes what it may. */
  seal(): void {
    for (const path of this.#sealed.splice(0)) this.#makeReadOnly(path);
  }

  /** Nothing of the image can be written to from now on. */
  makeReadOnly(): void {
    const flags = flag.remount | flag.bind | flag.readOnly | flag.nodev;
    sys.mount("", this.path, "", flags, "");
  }

  /** Type and permissions of a file; undefined without it. */
  mode(path: string): number | undefined {
    const fd = this.#tryOpen(path);
    if (fd === undefined) return undefined;
    const mode = sys.mode(byDescriptor(fd));
    sys.close(fd);
    return mode;
  }

  /** Makes a directory and those above it. */
  makeDirectories(path: string): void {
    const parts = path.split("/").filter((part) => part !== "");
    for (const i of parts.keys()) this.#makeDirectory(`/${parts.slice(0, i + 1).join("/")}`);
  }

  /** Writes down which process is its first, for an agent that starts anew. */
  mark(pid: number): void {
    writeFile(this.#mark, encodeUtf8(`${pid} ${sys.readlink(mountsOf(pid))}`));
  }

  /**
   * Lets go of everything. Its first process has ended, unless an agent before this one started it:
   * then it is killed.
   */
  remove(): void {
    this.#killMarked();
    try {
      sys.unmount(this.#directory);
    } catch (thrown) {
      // Not mounted, or not even made.
      if (!failedWith(thrown, "EINVAL", "ENOENT")) throw thrown;
    }
    try {
      sys.rmdir(this.#directory);
    } catch (thrown) {
      if (!failedWith(thrown, "ENOENT")) throw thrown;
    }
  }

  get #mark(): string {
    return `${this.#directory}.process`;
  }

  #killMarked(): void {
    const marked = readText(this.#mark);
    if (marked === undefined) return;
    const [pid = "", mounts] = marked.split(" ");
    try {
      // The number may be another process's by now.
      if (sys.readlink(mountsOf(Number(pid))) === mounts) sys.kill(Number(pid), 9);
    } catch (thrown) {
      if (!failedWith(thrown, "ENOENT", "ESRCH")) throw thrown;
    }
    sys.unlink(this.#mark);
  }

  #makeDevices(): void {
    const at = `${this.#directory}/dev`;
    // Device files work on this mount alone.
    sys.mount("podnet", at, "tmpfs", flag.nosuid | flag.noexec, "mode=0755,size=64k");
    for (const name of devices) {
      writeFile(`${at}/${name}`, new Uint8Array());
      sys.mount(`/dev/${name}`, `${at}/${name}`, "", flag.bind, "");
    }
    for (const [target, name] of deviceLinks) sys.symlink(target, `${at}/${name}`);
    for (const name of ["pts", "shm"]) sys.mkdir(`${at}/${name}`);
    const options = "newinstance,ptmxmode=0666,mode=0620,gid=5";
    sys.mount("devpts", `${at}/pts`, "devpts", flag.nosuid | flag.noexec, options);
    // Containers of a pod share memory, as they share its network.
    sys.mount("/dev/shm", `${at}/shm`, "", flag.bind, "");
  }

  #newFile(): string {
    return `${this.#directory}/files/${this.#files++}`;
  }

  #layOver(path: string, data: Uint8Array, owner: Owner = ofRoot, readOnly = false): void {
    const file = this.#newFile();
    this.#laid.set(path, file);
    writeFile(file, data);
    setOwner(file, openFlag.write, owner);
    this.#makeFile(path);
    this.#layMount(path, file, readOnly);
  }

  /** What writes to a share may put a link anywhere, which leads no further than the share. */
  #layShared(path: string, { at, below }: SharedPlace, readOnly: boolean): void {
    const fd = sys.openIn(at, `/${below}`, openFlag.path);
    try {
      const source = byDescriptor(fd);
      if (isDirectory(sys.mode(source))) this.makeDirectories(path);
      else this.#makeFile(path);
      this.#layMount(path, source, readOnly);
    } finally {
      sys.close(fd);
    }
  }

  #layMount(path: string, source: string, readOnly: boolean): void {
    this.#mountAt(path, (at) => sys.mount(source, at, "", flag.bind, ""));
    if (readOnly) this.#makeReadOnly(path);
  }

  /** What is mounted at a path, which leads to that mount. */
  #makeReadOnly(path: string): void {
    const flags = flag.remount | flag.bind | flag.readOnly | flag.nosuid | flag.nodev;
    this.#mountAt(path, (at) => sys.mount("", at, "", flags, ""));
  }

  /** An empty file, where there is nothing. */
  #makeFile(path: string): void {
    this.makeDirectories(path.slice(0, path.lastIndexOf("/")));
    if (this.mode(path) !== undefined) return;
    const { write, create, exclusive } = openFlag;
    this.#inParent(path, (at) => {
      unlinkIfThere(at);
      sys.close(sys.open(at, write | create | exclusive));
    });
  }

  #makeDirectory(path: string): void {
    if (this.mode(path) !== undefined) return;
    this.#inParent(path, (at) => {
      unlinkIfThere(at);
      sys.mkdir(at);
    });
  }

  /**
   * Calls with a path of the guest's for the name itself, not for what it links to. A link that
   * leads nowhere gives way: many images have one as /etc/resolv.conf.
   */
  #inParent(path: string, act: (at: string) => void): void {
    const cut = path.lastIndexOf("/");
    const above = this.#open(cut === 0 ? "/" : path.slice(0, cut));
    try {
      act(`${byDescriptor(above)}/${path.slice(cut + 1)}`);
    } finally {
      sys.close(above);
    }
  }

  /** Mounts at a path of the container's; directories are made, files have to be there. */
  #mountAt(path: string, mount: (at: string) => unknown): void {
    if (this.mode(path) === undefined) this.makeDirectories(path);
    const fd = this.#open(path);
    try {
      mount(byDescriptor(fd));
    } finally {
      sys.close(fd);
    }
  }

  #open(path: string): number {
    return sys.openIn(this.path, path, openFlag.path);
  }

  #tryOpen(path: string): number | undefined {
    try {
      return this.#open(path);
    } catch (thrown) {
      if (failedWith(thrown, "ENOENT", "ENOTDIR", "ELOOP", "EACCES")) return undefined;
      throw thrown;
    }
  }

  #read(path: string): string {
    const fd = this.#tryOpen(path);
    if (fd === undefined) return "";
    const text = readText(byDescriptor(fd)) ?? "";
    sys.close(fd);
    return text;
  }
}

function setOwner(path: string, flags: number, { uid, gid, mode }: Owner): void {
  const fd = sys.open(path, flags);
  try {
    sys.setOwner(fd, uid, gid, mode);
  } finally {
    sys.close(fd);
  }
}

function unlinkIfThere(path: string): void {
  try {
    sys.unlink(path);
  } catch (thrown) {
    if (!failedWith(thrown, "ENOENT")) throw thrown;
  }
}

/** What a mount refuses, for the host. */
export function notMounted(disk: string, thrown: unknown): unknown {
  if (!(thrown instanceof SysError)) return thrown;
  return new PodnetError(
    "INVALID_ARGUMENT",
    `The disk "${disk}" cannot be a container's root: ${thrown.message}`,
    {
      field: "disk",
      details: { errno: thrown.code },
    },
  );
}
