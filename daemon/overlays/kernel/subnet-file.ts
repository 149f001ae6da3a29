import {
  closeSync,
  constants,
  fchmodSync,
  fsyncSync,
  mkdirSync,
  openSync,
  renameSync,
  rmSync,
  writeSync,
} from "node:fs";
import { basename, dirname, join } from "node:path";
import { perform } from "../../../core/effect.ts";
import type { NetworkName } from "../../../core/names.ts";
import { encodeUtf8 } from "../../../core/utf8.ts";
import type { Log } from "../../../linux/log.ts";
import { readRegular } from "../../../linux/files/regular-file.ts";
import { fileError } from "../../../linux/syscall-error.ts";
import {
  type FormerSubnet,
  parseSubnetEnv,
  type SubnetEnv,
  subnetEnvText,
} from "../../../overlay/flannel/subnet-env.ts";
import type { OverlayConfig } from "../../config/overlay.ts";
import { WorkQueue } from "../../reconcile/work-queue.ts";

/**
 * The limit for the file's size, in bytes: no program writes a longer file, and podnetd does not
 * read one.
 */
const longest = 64 << 10;

/** The path of an overlay's file: each of several overlays, by `name`, has its own. */
export const subnetFilePath = (
  { subnetFile, subnetDir }: Pick<OverlayConfig, "subnetFile" | "subnetDir">,
  name: NetworkName | undefined,
): string => (name === undefined ? subnetFile : join(subnetDir, `${name}.env`));

export interface SubnetFileOptions {
  /** The result of `subnetFilePath`. */
  readonly path: string;
  readonly log: Pick<Log, "warn">;
  /**
   * Called once, after the first `write`, even if that failed, because pods have their network
   * anyway: the service manager may then start the programs that read the file.
   */
  readonly ready: () => void;
  /**
   * The wait before a failed write or removal is retried, in milliseconds. Default: two seconds.
   */
  readonly againMs?: number;
}

/**
 * The file that describes the overlay to programs on the host, as flannel's `subnet.env`. A reader
 * sees all of the old file or all of the new one. A failed write or removal is reported, holds up
 * nothing, and is retried until it succeeds.
 */
export class SubnetFile implements Disposable {
  readonly #options: SubnetFileOptions;
  #ready = false;
  /** The content that the file should have; undefined if there should be none. */
  #content: string | undefined;
  /** Of the two keys only the one that is wanted last is tried. */
  readonly #queue: WorkQueue<"write" | "remove">;

  constructor(options: SubnetFileOptions) {
    this.#options = options;
    const { path, log, againMs = 2000 } = options;
    this.#queue = new WorkQueue({
      name: "overlay-files",
      backoff: { firstMs: Math.min(500, againMs), longestMs: againMs },
      onDegraded: (key, { error }) => log.warn({ err: error, path }, missing[key]),
    });
  }

  /**
   * The content of a file from an earlier start of podnet or flannel; undefined if there is none,
   * or it cannot be read.
   */
  former(): FormerSubnet | undefined {
    const text = this.#text();
    return text === undefined ? undefined : parseSubnetEnv(text);
  }

  /**
   * Call this when this host has the subnet and its rules are in place, and whenever the content
   * changes.
   */
  write(env: SubnetEnv): void {
    this.#content = subnetEnvText(env);
    this.#put(this.#content);
    if (this.#ready) return;
    this.#ready = true;
    this.#options.ready();
  }

  /**
   * Repairs the file after outside changes. Returns whether it was changed and could be repaired.
   */
  look(): boolean {
    const content = this.#content;
    if (content === undefined || this.#text() === content) return false;
    this.#put(content);
    return this.#queue.condition("write").status === "ok";
  }

  /** The subnet has been given up. */
  remove(): void {
    const { path } = this.#options;
    this.#content = undefined;
    this.#try("remove", () => {
      try {
        perform("file", "remove subnet file", () => {
          rmSync(path, { force: true });
          // Where it could not be put in its place.
          rmSync(freshPath(path), { force: true });
        });
      } catch (thrown) {
        throw fileError(thrown, `Cannot remove ${path}`);
      }
    });
  }

  /** Stops the retries. */
  [Symbol.dispose](): void {
    void this.#queue.close();
  }

  #put(text: string): void {
    this.#try("write", () => {
      if (this.#text() !== text) replaceFile(this.#options.path, text);
    });
  }

  /** Now, and until it can be done or something else is wanted. */
  #try(key: "write" | "remove", make: () => void): void {
    this.#queue.forget(key === "write" ? "remove" : "write");
    try {
      make();
      this.#queue.forget(key);
    } catch (thrown) {
      this.#queue.failed(key, async () => make(), thrown);
    }
  }

  #text(): string | undefined {
    try {
      return readRegular(this.#options.path, longest, { follow: true }).toString("utf8");
    } catch {
      return undefined;
    }
  }
}

/** The log message while the file is not as planned. */
const missing = {
  write: "Failed to write the overlay's subnet file; retrying",
  remove: "Failed to remove the overlay's subnet file; retrying",
} as const;

/** Where it is written before it is put in its place. */
const freshPath = (path: string): string => join(dirname(path), `.${basename(path)}.new`);

/**
 * Replaces the file whole. `containers/cni/whole-files.ts` does less: its directories are of one
 * owner, so that it follows links, and it leaves the mode to the umask. Throws `SYSCALL_FAILED`.
 */
function replaceFile(path: string, text: string): void {
  const directory = dirname(path);
  const fresh = freshPath(path);
  try {
    perform("file", "make subnet file's directory", () =>
      mkdirSync(directory, { recursive: true }),
    );
    perform("file", "write subnet file", () => {
      const { O_WRONLY, O_CREAT, O_TRUNC, O_NOFOLLOW } = constants;
      const fd = openSync(fresh, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW, 0o644);
      try {
        // Whatever the umask is: it is for others to read.
        fchmodSync(fd, 0o644);
        const bytes = encodeUtf8(text);
        for (let at = 0; at < bytes.length; ) at += writeSync(fd, bytes, at);
        fsyncSync(fd);
      } finally {
        closeSync(fd);
      }
    });
    perform("file", "name subnet file", () => {
      renameSync(fresh, path);
      const fd = openSync(directory, "r");
      try {
        fsyncSync(fd);
      } finally {
        closeSync(fd);
      }
    });
  } catch (thrown) {
    throw fileError(thrown, `Cannot write ${path}`, {
      hint: `Let podnetd write in ${directory}, or configure overlay.subnet_file elsewhere`,
    });
  }
}
