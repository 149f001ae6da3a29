import { closeSync, constants, openSync } from "node:fs";
import { basename, dirname } from "node:path";
import { PodnetError } from "../../core/errors.ts";
import { encodeUtf8 } from "../../core/utf8.ts";
import { fileError } from "../syscall-error.ts";

/** `sun_path` has 108 bytes, the last for a NUL (include/uapi/linux/un.h). */
export const maxSocketPath = 107;

// include/uapi/asm-generic/fcntl.h; Node's own constants lack it.
const O_PATH = 0o10000000;

/** A path that fits a socket address, valid in this process until closed. */
export interface SocketPath extends Disposable {
  readonly path: string;
  /** Closes the directory. Bound and connected sockets stay so. A second call does nothing. */
  close(): void;
}

/**
 * A path by which `bind` and `connect` in this process reach `path`, however long it is: the same
 * one when it fits, else `/proc/self/fd/N/<last part>` of the opened directory. Keep it open as
 * long as a `net.Server` listens on it, since that unlinks the path when it closes. A child process
 * cannot use it: start QEMU in the directory and give it the bare name.
 *
 * Throws `SYSCALL_FAILED` when the directory cannot be opened, `INVALID_ARGUMENT` when the last
 * part alone is too long.
 */
export function listenPath(path: string): SocketPath {
  const name = basename(path);
  if (path.includes("\0")) throw new PodnetError("INVALID_ARGUMENT", "A socket path holds a NUL");
  if (encodeUtf8(path).length <= maxSocketPath) return new ShortenedPath(path, undefined);
  const what = `Cannot open the directory of socket "${path}"`;
  const directory = openDirectory(dirname(path), what);
  const short = `/proc/self/fd/${directory}/${name}`;
  if (encodeUtf8(short).length > maxSocketPath) {
    closeSync(directory);
    throw new PodnetError("INVALID_ARGUMENT", `The socket name "${name}" is too long`, {
      hint: "Use a file name of at most 80 bytes",
    });
  }
  return new ShortenedPath(short, directory);
}

function openDirectory(path: string, what: string): number {
  try {
    return openSync(path, O_PATH | constants.O_DIRECTORY);
  } catch (error) {
    throw fileError(error, what);
  }
}

class ShortenedPath implements SocketPath {
  readonly path: string;
  #directory: number | undefined;

  constructor(path: string, directory: number | undefined) {
    this.path = path;
    this.#directory = directory;
  }

  close(): void {
    if (this.#directory !== undefined) closeSync(this.#directory);
    this.#directory = undefined;
  }

  [Symbol.dispose](): void {
    this.close();
  }
}
