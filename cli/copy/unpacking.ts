import {
  chmodSync,
  closeSync,
  constants,
  fchmodSync,
  futimesSync,
  linkSync,
  lstatSync,
  mkdirSync,
  openSync,
  symlinkSync,
  utimesSync,
  writeSync,
} from "node:fs";
import path from "node:path";
import { PodnetError } from "../../core/errors.ts";
import { onFiles, Staging } from "./staging.ts";
import { type TarEntry, TarReader, type TarSink } from "./tar-reader.ts";

export interface UnpackingOptions {
  /** Nothing is made outside of it. */
  readonly directory: string;
  /**
   * The requested path: every entry's path is this or below it; `.` is the content of a directory.
   */
  readonly from: string;
  /** The new name; `.` leaves the content of a directory without a name of its own. */
  readonly to: string;
  /** The kind that the guest reported, which the archive has to match. */
  readonly kind: "file" | "directory" | "link" | "other";
  /** Whether links are made that lead out of what is copied. */
  readonly outsideLinks: boolean;
  readonly leftOut: (what: string, why: string) => void;
}

/** Limits of an archive. Honest ones have less: most programs cannot even name paths that long. */
const most = { entries: 1_000_000, path: 2048, part: 255, depth: 128 } as const;
/** Characters of paths that are kept until the end: of directories and links. */
const mostKept = 32 * 1024 * 1024;
const newFile = constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW;

/**
 * Unpacks an archive that a guest made, which is not trusted. Everything is made in a private
 * directory, and moved into place when it is complete. Unrequested entries are refused. Links come
 * last, and links that lead out of the copy are left out, unless they were requested. The caller
 * owns the files; set-user-id and set-group-id bits are not kept.
 */
export class Unpacking implements TarSink, Disposable {
  readonly #options: UnpackingOptions;
  readonly #staging: Staging;
  readonly #reader = new TarReader(this);
  readonly #directories = new Map<string, { readonly mode: number; readonly mtime: number }>();
  readonly #links = new Map<string, string>();
  #entries = 0;
  #kept = 0;
  #file: { readonly fd: number; readonly mode: number; readonly mtime: number } | undefined;

  /** Throws `SYSCALL_FAILED` where nothing can be made. */
  constructor(options: UnpackingOptions) {
    this.#options = options;
    this.#staging = new Staging(options.directory);
  }

  /**
   * The next bytes. Throws `AGENT_PROTOCOL` for what was not asked for, `SYSCALL_FAILED` for what
   * cannot be written.
   */
  take(data: Uint8Array): void {
    onFiles("Cannot write what the guest sent", () => this.#reader.push(data));
  }

  /**
   * The stream has ended: everything is moved into place. Throws as `take`, and as
   * `Staging.moveInto`.
   */
  end(): void {
    this.#reader.end();
    onFiles("Cannot make links", () => {
      // Makes all directories before the first link, so that no directory is made through a link.
      for (const at of this.#links.keys()) this.#makeParents(at);
      for (const [at, target] of this.#links) this.#once(at, (whole) => symlinkSync(target, whole));
    });
    this.#staging.moveInto(this.#options.directory);
    onFiles("Cannot set modes and times", () => this.#finishDirectories());
  }

  [Symbol.dispose](): void {
    if (this.#file !== undefined) closeSync(this.#file.fd);
    this.#file = undefined;
    this.#staging[Symbol.dispose]();
  }

  entry(entry: TarEntry): void {
    if (++this.#entries > most.entries) throw refused(`has more than ${most.entries} entries`);
    const at = this.#place(entry.path);
    this.#checkKind(entry, at);
    // The directory that is copied into is the caller's own.
    if (at === ".") return;
    switch (entry.kind) {
      case "file":
        return this.#begin(at, entry);
      case "directory":
        return this.#makeDirectory(at, entry);
      case "link":
        return this.#hardLink(at, this.#place(entry.target));
      case "symlink":
        return this.#keepLink(at, entry);
      case "other":
        return this.#options.leftOut(entry.path, "being no file");
    }
  }

  data(bytes: Uint8Array): void {
    for (let at = 0; at < bytes.length; )
      at += writeSync(this.#file?.fd as number, bytes, at, bytes.length - at);
  }

  done(): void {
    if (this.#file === undefined) return;
    const { fd, mode, mtime } = this.#file;
    this.#file = undefined;
    try {
      fchmodSync(fd, mode & 0o777);
      futimesSync(fd, mtime, mtime);
    } finally {
      closeSync(fd);
    }
  }

  /**
   * The requested entry has the kind that the guest reported before: a file must not have become a
   * link meanwhile.
   */
  #checkKind({ path: named, kind }: TarEntry, at: string): void {
    if (at !== this.#options.to) return;
    const said = this.#options.kind;
    const is = kind === "symlink" ? "link" : kind;
    if (is !== said) throw refused(`has "${named}" as a ${is}, which was a ${said} before`);
  }

  #begin(at: string, { mode, mtime }: TarEntry): void {
    this.#makeParents(at);
    this.#once(at, (whole) => {
      this.#file = { fd: openSync(whole, newFile, 0o600), mode, mtime };
    });
  }

  #makeDirectory(at: string, { mode, mtime }: TarEntry): void {
    this.#makeParents(`${at}/.`);
    if (!this.#directories.has(at)) this.#keep(at);
    this.#directories.set(at, { mode: mode & 0o1777, mtime });
  }

  #hardLink(at: string, target: string): void {
    const [whole, first] = [this.#whole(at), this.#whole(target)];
    if (lstatSync(first, { throwIfNoEntry: false })?.isFile() !== true)
      throw refused(`has "${at}" as one with "${target}", which is no file of it`);
    this.#makeParents(at);
    this.#once(at, () => linkSync(first, whole));
  }

  #keepLink(at: string, { path: named, target }: TarEntry): void {
    if (!this.#options.outsideLinks && !staysInside(this.#below(at), target))
      return this.#options.leftOut(`${named} -> ${target}`, "leading out of what is copied");
    if (target === "" || target.length > most.path) throw refused(`has a link without an end`);
    if (this.#links.has(at)) throw refused(`has "${named}" twice`);
    this.#keep(at + target);
    this.#links.set(at, target);
  }

  /** Bounds what is kept until the end. */
  #keep(text: string): void {
    this.#kept += text.length;
    if (this.#kept > mostKept) throw refused("has too many directories and links");
  }

  /** How many directories of what is copied are above a link; -1 for what was asked for itself. */
  #below(at: string): number {
    return at.split("/").length - (this.#options.to === "." ? 1 : 2);
  }

  #finishDirectories(): void {
    const innermostFirst = [...this.#directories].toSorted(
      ([a], [b]) => b.split("/").length - a.split("/").length,
    );
    for (const [at, { mode, mtime }] of innermostFirst) {
      const whole = path.join(this.#options.directory, at);
      utimesSync(whole, mtime, mtime);
      chmodSync(whole, mode);
    }
  }

  #whole(at: string): string {
    return path.join(this.#staging.root, at);
  }

  /**
   * Makes the directories above a path. Nothing but what came from the archive is there, and no
   * link is yet.
   */
  #makeParents(at: string): void {
    const parent = path.dirname(at);
    try {
      mkdirSync(this.#whole(parent), { recursive: true });
    } catch (thrown) {
      if (!isConflict(thrown)) throw thrown;
      throw refused(`has "${parent}" as a directory and as something else`);
    }
  }

  #once(at: string, make: (whole: string) => void): void {
    try {
      make(this.#whole(at));
    } catch (thrown) {
      if (!isConflict(thrown)) throw thrown;
      throw refused(`has "${at}" twice`);
    }
  }

  /**
   * An entry's path with the name it is to have. Throws for one that was not asked for, or that is
   * no path.
   */
  #place(text: string): string {
    const parts = text.split("/").filter((part) => part !== "" && part !== ".");
    const { from, to } = this.#options;
    const below = from === "." ? parts : parts[0] === from ? parts.slice(1) : undefined;
    if (below === undefined || parts.includes("..") || text.startsWith("/") || text.includes("\0"))
      throw refused(`has "${text}", which was not asked for`);
    const isLong = parts.some((part) => Buffer.byteLength(part) > most.part);
    if (isLong || parts.length > most.depth || Buffer.byteLength(text) > most.path)
      throw refused("has a path that is too long");
    return [to, ...below].filter((part) => part !== ".").join("/") || ".";
  }
}

/**
 * Whether a link in a directory at this depth inside of the copy leads to something inside. Steps
 * up come first, and are at most as many as there are directories: other links on its way lead
 * inside as well. Pure.
 */
export function staysInside(depth: number, target: string): boolean {
  if (target.startsWith("/")) return false;
  const parts = target.split("/").filter((part) => part !== "" && part !== ".");
  const firstName = parts.findIndex((part) => part !== "..");
  const ups = firstName < 0 ? parts.length : firstName;
  return ups <= depth && !parts.slice(ups).includes("..");
}

const isConflict = (thrown: unknown): boolean =>
  ["EEXIST", "ENOTDIR", "EISDIR"].includes((thrown as NodeJS.ErrnoException).code ?? "");

const refused = (what: string): PodnetError =>
  new PodnetError("AGENT_PROTOCOL", `The guest's archive ${what}`, {
    hint: "Nothing was kept; do not trust the guest",
  });
