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
import { PodnetError } from "../../../core/errors.ts";
import { printable } from "../../../core/names.ts";
import { encodeOutput } from "../../pods/process/log-lines.ts";

const isWithin = (path: string, directory: string): boolean => {
  const from = relative(directory, path);
  return from !== "" && from !== ".." && !from.startsWith("../") && !isAbsolute(from);
};

/**
 * The file of a container's log; undefined where Kubernetes names none. Throws `PERMISSION_DENIED`
 * for one outside of `root`.
 */
export function logFile(directory: string, path: string, root: string): string | undefined {
  if (directory === "" || path === "") return undefined;
  const file = normalize(join(directory, path));
  if (isAbsolute(directory) && isWithin(file, normalize(root))) return file;
  throw outside(file, root);
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

  /**
   * `record`: the file that says how far it goes. Throws `PERMISSION_DENIED`, and errors of files.
   */
  constructor(path: string, root: string, record: string) {
    this.#path = path;
    this.#root = root;
    this.#record = record;
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
      // Of a full disk: half a line would be taken for another.
      if (written < bytes.length)
        perform("file", "cut container log", () => ftruncateSync(this.#fd, this.#size));
      else this.#size += written;
      this.#keep();
    } catch {
      // The container goes on without its log.
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
    const { O_WRONLY, O_CREAT, O_APPEND, O_NOFOLLOW } = constants;
    this.#fd = perform("file", "open container log", () => {
      const directory = dirname(this.#path);
      mkdirSync(directory, { recursive: true });
      // A link on the way would lead elsewhere.
      if (!isWithin(join(realpathSync(directory), "log"), realpathSync(this.#root)))
        throw outside(this.#path, this.#root);
      return openSync(this.#path, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW, 0o640);
    });
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
