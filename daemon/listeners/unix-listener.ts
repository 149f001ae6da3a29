import { once } from "node:events";
import { chmodSync, chownSync, lstatSync, unlinkSync } from "node:fs";
import { createServer, type Server, type Socket } from "node:net";
import { perform, performAsync } from "../../core/effect.ts";
import { PodnetError } from "../../core/errors.ts";
import { printable } from "../../core/names.ts";
import { groupId } from "../../linux/processes/accounts.ts";
import { findListener, listenPath, type SocketPath } from "../../linux/sockets/unix-socket.ts";

export interface UnixListenerOptions {
  readonly path: string;
  /** By name or number. */
  readonly group: string | undefined;
  /** Of the socket's file; for its owner and the group unless given. */
  readonly mode?: number;
  /** Its owner's name in failpoints; the API by default. */
  readonly of?: string;
}

/** A listening unix socket; the file goes with it. */
export interface UnixListener {
  readonly server: Server;
  close(): void;
}

/**
 * Listens on a unix socket that only its owner and the group may use, or its owner alone. A socket
 * file left by a daemon that was killed is replaced; one with a listener is not. Throws
 * `ALREADY_RUNNING`, `PREFLIGHT_FAILED`.
 */
export async function listenUnix(
  options: UnixListenerOptions,
  onConnection: (socket: Socket) => void,
): Promise<UnixListener> {
  const { path, of = "API" } = options;
  removeDead(path, of);
  const short: SocketPath = listenPath(path);
  const server = createServer({ pauseOnConnect: false }, onConnection);
  try {
    await performAsync("socket", `listen for the ${of}`, () => listenClosed(server, short.path));
    const { group, mode = 0o660 } = options;
    if (group !== undefined)
      perform("file", `give ${of} socket to its group`, () => chownSync(path, -1, groupOf(group)));
    perform("file", `open ${of} socket`, () => chmodSync(path, mode));
  } catch (cause) {
    server.close();
    short.close();
    if (cause instanceof PodnetError) throw cause;
    throw new PodnetError("PREFLIGHT_FAILED", `Cannot listen on "${path}"`, {
      hint: "Check that its directory is there and writable, or set another socket",
      cause,
    });
  }
  let ended = false;
  const end = (): void => {
    if (ended) return;
    ended = true;
    server.close(() => short.close());
  };
  return {
    server,
    close: () => {
      try {
        perform("socket", `end the ${of}`, end);
      } finally {
        // Its file is gone by the end of podnetd, whatever fails.
        end();
      }
    },
  };
}

/** Listens with a socket file for its owner alone. */
async function listenClosed(server: Server, path: string): Promise<void> {
  const listening = once(server, "listening");
  // Never, not even for a moment, open to everybody: bind(2) makes the file with the mask of this
  // moment, before `listen` returns. The mask is the whole process's: nothing else is to be made
  // with it.
  const before = process.umask(0o177);
  try {
    server.listen(path);
  } finally {
    process.umask(before);
  }
  await listening;
}

/**
 * Removes the socket of a daemon that was killed; throws `ALREADY_RUNNING` when one still listens
 * on it.
 */
function removeDead(path: string, of: string): void {
  try {
    findListener(path);
  } catch (thrown) {
    const errno = thrown instanceof PodnetError ? thrown.details["errno"] : undefined;
    if (errno === "ENOENT") return;
    if (errno !== "ECONNREFUSED") {
      throw new PodnetError(
        "PREFLIGHT_FAILED",
        `Cannot see whether a process listens on "${path}"`,
        {
          hint: "Check the socket and its directory, or set another socket",
          cause: thrown,
        },
      );
    }
    // connect(2) refuses a file that is not a socket with the same errno; such a foreign file
    // stays.
    if (lstatSync(path).isSocket())
      perform("file", `remove dead ${of} socket`, () => unlinkSync(path));
    return;
  }
  throw new PodnetError("ALREADY_RUNNING", `Another process already listens on "${path}"`, {
    hint: "Use the daemon that runs (`podnet info`), stop it, or set another socket",
  });
}

function groupOf(group: string): number {
  const id = groupId(group);
  if (id !== undefined) return id;
  throw new PodnetError("CONFIG_INVALID", `There is no group "${printable(group)}"`, {
    field: "socket_group",
    hint: `Make it (groupadd --system ${printable(group)}) or name another one`,
  });
}
