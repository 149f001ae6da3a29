import { chmodSync, lstatSync, symlinkSync, unlinkSync, utimesSync } from "node:fs";
import { once } from "node:events";
import path from "node:path";
import { type ReadEntry, Unpack } from "tar";
import { PodnetError } from "../../core/errors.ts";

export interface UnpackingOptions {
  /** Nothing is made outside of it. */
  readonly directory: string;
  /** What was asked for: every entry's path is this or below it; `.` is whatever is in a directory. */
  readonly from: string;
  /** What it is to be called; `.` leaves what is in a directory without a name of its own. */
  readonly to: string;
  readonly leftOut: (what: string) => void;
}

interface Later {
  readonly path: string;
  readonly mode: number;
  readonly mtime: Date | undefined;
  readonly isDirectory: boolean;
}

/**
 * An archive that a guest made, unpacked: it may be anything. What was not asked for is refused, and links are made last, so that
 * nothing is ever written through one. The caller owns the files; set-user-id and set-group-id bits are not kept.
 */
export class Unpacking {
  readonly #options: UnpackingOptions;
  readonly #unpack: Unpack;
  readonly #done: Promise<unknown>;
  readonly #later: Later[] = [];
  readonly #links: { readonly path: string; readonly target: string }[] = [];
  #fault: Error | undefined;

  constructor(options: UnpackingOptions) {
    this.#options = options;
    this.#unpack = new Unpack({
      cwd: options.directory,
      preserveOwner: false,
      chmod: true,
      processUmask: 0,
      umask: 0o022,
      filter: (_, entry) => this.#accept(entry as ReadEntry),
      onwarn: (code, message) => this.#warned(code, message),
    });
    this.#unpack.on("error", (error: Error) => {
      this.#fault ??= error;
    });
    this.#done = once(this.#unpack, "finish");
    this.#done.catch(() => {});
  }

  /** The next bytes. Throws `AGENT_PROTOCOL` for what was not asked for, and what writing files throws. */
  async take(data: Uint8Array): Promise<void> {
    this.#check();
    if (!this.#unpack.write(Buffer.from(data))) await once(this.#unpack, "drain");
    this.#check();
  }

  /** No more bytes come. */
  async end(): Promise<void> {
    this.#unpack.end();
    await this.#done.catch(() => {});
    this.#check();
    for (const { path: file, mode } of this.#later) chmodSync(file, mode);
    for (const link of this.#links) this.#link(link);
    // What is made in a directory changes its time: the innermost first.
    for (const { path: file, mtime, isDirectory } of this.#later.toReversed()) {
      if (isDirectory && mtime !== undefined) utimesSync(file, mtime, mtime);
    }
  }

  #check(): void {
    if (this.#fault !== undefined) throw this.#fault;
  }

  #accept(entry: ReadEntry): boolean {
    const wanted = this.#place(entry.path);
    if (wanted === undefined) return this.#refuse(entry.path);
    // The directory that is copied into is the caller's own.
    if (wanted === ".") return false;
    switch (entry.type) {
      case "SymbolicLink":
        this.#links.push({ path: wanted, target: String(entry.linkpath) });
        return false;
      case "Link": {
        const target = this.#place(String(entry.linkpath));
        if (target === undefined) return this.#refuse(String(entry.linkpath));
        entry.linkpath = target;
        break;
      }
      case "File":
      case "OldFile":
      case "ContiguousFile":
      case "Directory":
        this.#later.push({
          path: path.join(this.#options.directory, wanted),
          // For a while nobody but the caller needs to get into it.
          mode: (entry.mode ?? 0o644) & 0o1777,
          mtime: entry.mtime,
          isDirectory: entry.type === "Directory",
        });
        break;
      default:
        this.#options.leftOut(entry.path);
        return false;
    }
    entry.path = wanted;
    // A directory that is not to be written to is filled first.
    entry.mode = entry.type === "Directory" ? 0o700 : (entry.mode ?? 0o644) & 0o777;
    return true;
  }

  /** An entry's path with the name it is to have; undefined for one that was not asked for. */
  #place(text: string): string | undefined {
    const parts = text.split("/").filter((part) => part !== "" && part !== ".");
    if (parts.includes("..") || text.startsWith("/") || text.includes("\0")) return undefined;
    const { from, to } = this.#options;
    const below = from === "." ? parts : parts[0] === from ? parts.slice(1) : undefined;
    if (below === undefined) return undefined;
    return [to, ...below].filter((part) => part !== ".").join("/") || ".";
  }

  #refuse(name: string): false {
    this.#fault ??= new PodnetError(
      "AGENT_PROTOCOL",
      `The guest's archive has "${name}", which was not asked for`,
      { hint: "What was copied before it is there; do not trust the guest" },
    );
    return false;
  }

  #warned(code: string, message: string): void {
    this.#fault ??= new PodnetError("AGENT_PROTOCOL", `The guest's archive: ${message} (${code})`, {
      hint: "What was copied before it is there; try again",
    });
  }

  #link({ path: link, target }: { readonly path: string; readonly target: string }): void {
    let at = this.#options.directory;
    const parts = link.split("/");
    for (const part of parts.slice(0, -1)) {
      at = path.join(at, part);
      if (!(lstatSync(at, { throwIfNoEntry: false })?.isDirectory() ?? false)) {
        this.#refuse(link);
        this.#check();
      }
    }
    const whole = path.join(at, parts.at(-1) as string);
    if (lstatSync(whole, { throwIfNoEntry: false }) !== undefined) unlinkSync(whole);
    symlinkSync(target, whole);
  }
}
