import { closeSync, constants, openSync } from "node:fs";
import { basename, dirname } from "node:path";

/** Where podnetd listens unless configured otherwise. */
export const defaultSocket = "/run/podnet/podnet.sock";

/** Longest path a `sockaddr_un` takes, bytes; longer ones are cut off by libuv without an error. */
const maxPath = 107;

export interface SocketPath extends Disposable {
  /** What to give to connect(2). */
  readonly path: string;
}

/**
 * A path that connect(2) takes for a socket whose own may be too long: through a descriptor of its
 * folder. Dispose it once connected. Throws what open(2) says about the folder.
 */
export function openSocketPath(socket: string): SocketPath {
  if (Buffer.byteLength(socket) <= maxPath) return { path: socket, [Symbol.dispose]: () => {} };
  const folder = openSync(dirname(socket), constants.O_RDONLY | constants.O_DIRECTORY);
  return {
    path: `/proc/self/fd/${folder}/${basename(socket)}`,
    [Symbol.dispose]: () => closeSync(folder),
  };
}
