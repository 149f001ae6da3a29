import { chmodSync, chownSync, lstatSync, readFileSync, unlinkSync } from "node:fs";
import { createServer, type Server, type Socket } from "node:net";
import { PodnetError } from "../../core/errors.ts";
import { connectUnix, listenPath, type SocketPath } from "../../linux/unix-socket.ts";

export interface UnixListenerOptions {
  readonly path: string;
  /** By name or number. */
  readonly group: string | undefined;
}

/** A listening unix socket; the file goes with it. */
export interface UnixListener {
  readonly server: Server;
  close(): void;
}

/**
 * Listens on a unix socket that only its owner and the group may use. A file left by a daemon that was killed is
 * replaced; one somebody listens on is not. Throws `ALREADY_RUNNING`, `PREFLIGHT_FAILED`.
 */
export async function listenUnix(
  options: UnixListenerOptions,
  onConnection: (socket: Socket) => void,
): Promise<UnixListener> {
  const { path } = options;
  await removeDead(path);
  const short: SocketPath = listenPath(path);
  const server = createServer({ pauseOnConnect: false }, onConnection);
  // Never, not even for a moment, open to everybody: bind(2) makes the file with the mask of this moment.
  const before = process.umask(0o177);
  try {
    await new Promise<void>((resolve, reject) => {
      server.once("error", reject);
      server.listen(short.path, resolve);
    });
    if (options.group !== undefined) chownSync(path, -1, groupId(options.group));
    chmodSync(path, 0o660);
  } catch (cause) {
    server.close();
    short.close();
    if (cause instanceof PodnetError) throw cause;
    throw new PodnetError("PREFLIGHT_FAILED", `Cannot listen on "${path}"`, {
      hint: "Check that its directory is there and writable, or set another socket",
      cause,
    });
  } finally {
    process.umask(before);
  }
  return {
    server,
    close: () => {
      server.close(() => short.close());
    },
  };
}

/** Removes the socket of a daemon that was killed; throws `ALREADY_RUNNING` when one still listens on it. */
async function removeDead(path: string): Promise<void> {
  try {
    using _alive = await connectUnix(path);
  } catch (thrown) {
    const errno = thrown instanceof PodnetError ? thrown.details["errno"] : undefined;
    // connect(2) refuses a file that is no socket with the same errno; that one is somebody's.
    if (errno === "ECONNREFUSED" && lstatSync(path).isSocket()) unlinkSync(path);
    return;
  }
  throw new PodnetError("ALREADY_RUNNING", `Somebody already listens on "${path}"`, {
    hint: "Use the daemon that runs (`podnet info`), stop it, or set another socket",
  });
}

function groupId(group: string): number {
  if (/^\d+$/.test(group)) return Number(group);
  const line = readFileSync("/etc/group", "utf8")
    .split("\n")
    .find((each) => each.startsWith(`${group}:`));
  if (line === undefined) {
    throw new PodnetError("CONFIG_INVALID", `There is no group "${group}"`, {
      field: "socket_group",
      hint: `Make it (groupadd --system ${group}) or name another one`,
    });
  }
  return Number(line.split(":")[2]);
}
