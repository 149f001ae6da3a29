import {
  closeSync,
  constants,
  existsSync,
  fstatSync,
  ftruncateSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  realpathSync,
  rmSync,
  writeFileSync,
  writeSync,
} from "node:fs";
import { dirname, isAbsolute, join, normalize, relative } from "node:path";
import { perform } from "../../../core/effect.ts";
import { isPodnetError, PodnetError, toPodnetError } from "../../../core/errors.ts";
import { printable } from "../../../core/names.ts";
import { encodeOutput } from "../../pods/process/log-lines.ts";

const isWithin = (path: string, directory: string): boolean => {
  const from = relative(directory, path);
  return from !== "" && from !== ".." && !from.startsWith("../") && !isAbsolute(from);
};

/**
 * The file of a container's log; undefined where Kubernetes names none. Throws `PERMISSION_DENIED`
 * for one outside of its sandbox's `directory`, and for a directory outside of `root`.
 */
export function logFile(directory: string, path: string, root: string): string | undefined {
  if (directory === "" || path === "") return undefined;
  const file = normalize(join(directory, path));
  if (!isAbsolute(directory) || !isWithin(file, normalize(root))) throw outside(file, root);
  if (isWithin(file, normalize(directory))) return file;
  throw new PodnetError(
    "PERMISSION_DENIED",
    `The log "${printable(path)}" is not in its sandbox's directory "${printable(directory)}"`,
    { field: "config.log_path", hint: "Give a path below log_directory of the sandbox" },
  );
}

const outside = (file: string, root: string): PodnetError =>
  new PodnetError("PERMISSION_DENIED", `The log "${printable(file)}" is not in ${root}`, {
    field: "config.log_path",
    hint: "Set cri.log_path to the directory that kubelet keeps the logs of pods in",
  });

/** What is in the file: so much of the output, up to this size of this file. */
interface Kept {
  readonly inode: number;
  readonly size: number;
  readonly at: number;
}

/** Which file a log is. */
export interface LogPlace {
  readonly path: string;
  /** The directory that all logs are in. */
  readonly root: string;
  /** The file that says how far the log goes. */
  readonly record: string;
}

/**
 * The log of a container, in the format of Kubernetes' runtimes, where kubelet wants it. It has
 * nothing but output, so how far it goes is in a file of podnetd's own. A write that fails costs
 * the output it had.
 */
export class ContainerLog {
  readonly #path: string;
  readonly #root: string;
  readonly #record: string;
  #fd = -1;
  #inode = 0;
  #size = 0;
  #position = 0;
  readonly #failed: (thrown: unknown) => void;
  #fails = false;

  /**
   * `failed` has the first of several writes that fail. Throws `PERMISSION_DENIED`, and
   * `SYSCALL_FAILED` for a file that cannot be opened.
   */
  constructor({ path, root, record }: LogPlace, failed: (thrown: unknown) => void) {
    this.#path = path;
    this.#root = root;
    this.#record = record;
    this.#failed = failed;
    const kept = readKept(record);
    this.#position = kept?.at ?? 0;
    this.#open();
    // Output that came after the record is asked for again.
    if (kept?.inode === this.#inode && this.#size > kept.size) {
      perform("file", "cut container log", () => ftruncateSync(this.#fd, kept.size));
      this.#size = kept.size;
    }
  }

  /** Bytes of output that are in the log, or were lost on the way. */
  get position(): number {
    return this.#position;
  }

  /** Writes output that begins at a position. Answers the bytes that this took of the log. */
  write(ms: number, stderr: boolean, data: Uint8Array, at: number): number {
    this.#position = at + data.length;
    const bytes = encodeOutput(new Date(ms).toISOString(), stderr, data);
    try {
      const written = perform("file", "write container log", () => writeSync(this.#fd, bytes));
      if (written < bytes.length) {
        // Half a line would be taken for another.
        perform("file", "cut container log", () => ftruncateSync(this.#fd, this.#size));
        throw new Error(`Only ${written} of ${bytes.length} bytes fitted: the disk is full`);
      }
      this.#size += written;
      this.#keep();
      this.#fails = false;
    } catch (thrown) {
      // The container goes on without this part of its log.
      if (!this.#fails) this.#failed(thrown);
      this.#fails = true;
    }
    return bytes.length;
  }

  /** Goes on in a new file: kubelet has renamed the one before. */
  reopen(): void {
    const before = this.#fd;
    this.#open();
    if (before >= 0) closeSync(before);
    this.#keep();
  }

  close(): void {
    if (this.#fd >= 0) closeSync(this.#fd);
    this.#fd = -1;
  }

  #open(): void {
    try {
      this.#fd = openWithin(this.#path, this.#root);
    } catch (thrown) {
      if (isPodnetError(thrown)) throw thrown;
      throw new PodnetError(
        "SYSCALL_FAILED",
        `The log "${printable(this.#path)}" cannot be opened: ${toPodnetError(thrown).message}`,
        {
          field: "config.log_path",
          hint: "See that its directory can be written to",
          cause: thrown,
        },
      );
    }
    const { ino, size } = fstatSync(this.#fd);
    this.#inode = ino;
    this.#size = size;
  }

  #keep(): void {
    const kept: Kept = { inode: this.#inode, size: this.#size, at: this.#position };
    // Padded, so that one write replaces the whole of the one before.
    const text = `${JSON.stringify(kept).padEnd(95)}\n`;
    perform("file", "record container log", () =>
      writeFileSync(this.#record, text, { flag: "r+" }),
    );
  }
}

/** Opens a log for writing at its end, and makes it and its directory if they are missing. */
function openWithin(path: string, root: string): number {
  const directory = dirname(path);
  perform("file", "make directory of logs", () => mkdirSync(root, { recursive: true }));
  // A link on the way would lead elsewhere, also what is made.
  let above = directory;
  while (!existsSync(above)) above = dirname(above);
  for (const each of [above, directory]) {
    if (!isWithin(join(realpathSync(each), "log"), realpathSync(root))) throw outside(path, root);
    perform("file", "make directory of log", () => mkdirSync(directory, { recursive: true }));
  }
  const { O_WRONLY, O_CREAT, O_APPEND, O_NOFOLLOW, O_NONBLOCK } = constants;
  // A pipe without a reader would hold up podnetd.
  const flags = O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_NONBLOCK;
  const fd = perform("file", "open container log", () => openSync(path, flags, 0o640));
  if (fstatSync(fd).isFile()) return fd;
  closeSync(fd);
  throw new Error("It is not a file");
}

/** Makes the record of a log that begins. */
export function beginRecord(record: string): void {
  perform("file", "make record of container log", () => {
    mkdirSync(dirname(record), { recursive: true, mode: 0o700 });
    writeFileSync(record, "", { mode: 0o600 });
  });
}

export const dropRecord = (record: string): void =>
  perform("file", "remove record of container log", () => rmSync(record, { force: true }));

/** Removes the records of logs of containers that are gone. */
export function sweepRecords(directory: string, ids: ReadonlySet<string>): void {
  if (!existsSync(directory)) return;
  for (const name of readdirSync(directory)) if (!ids.has(name)) dropRecord(join(directory, name));
}

function readKept(record: string): Kept | undefined {
  try {
    const kept = JSON.parse(readFileSync(record, "utf8")) as Partial<Kept>;
    const { inode, size, at } = kept;
    return [inode, size, at].every(Number.isSafeInteger) ? (kept as Kept) : undefined;
  } catch {
    return undefined;
  }
}
