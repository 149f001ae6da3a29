import { mkdirSync } from "node:fs";
import { createServer } from "node:net";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { cross, crossAsync } from "../core/crossing.ts";
import { PodnetError, toPodnetError } from "../core/errors.ts";

/** What a daemon holds while it runs; the kernel lets go of it when the process ends, however it ends. */
export interface Lock extends Disposable {
  release(): void;
}

const alreadyRunning = (what: string, hint: string, cause: unknown): PodnetError =>
  new PodnetError("ALREADY_RUNNING", `Another podnetd already ${what}`, { hint, cause });

/**
 * Locks the state directory. SQLite holds an exclusive transaction on `lock.db`: a record lock on a
 * file, so it works across network namespaces and ends with the process.
 * Throws `ALREADY_RUNNING` or `STATE_UNWRITABLE`.
 */
export function lockState(stateDir: string): Lock {
  let database: DatabaseSync | undefined;
  try {
    cross("file", "make state directory", () =>
      mkdirSync(stateDir, { recursive: true, mode: 0o700 }),
    );
    const opened = new DatabaseSync(join(stateDir, "lock.db"), { timeout: 0, open: false });
    database = opened;
    cross("file", "lock state directory", () => {
      opened.open();
      opened.exec("BEGIN EXCLUSIVE");
    });
  } catch (cause) {
    if (database?.isOpen) database.close();
    if (/locked|busy/i.test(toPodnetError(cause).message)) {
      throw alreadyRunning(
        `uses the state directory "${stateDir}"`,
        "Use the one that runs (`podnet info`), stop it, or choose another --state-dir",
        cause,
      );
    }
    throw new PodnetError("STATE_UNWRITABLE", `State directory "${stateDir}" cannot be written`, {
      hint: "Give podnetd's user write access to it, free some space, or choose another --state-dir",
      cause,
    });
  }
  const held = database;
  const release = (): void => {
    if (held.isOpen) cross("file", "unlock state directory", () => held.close());
  };
  return { release, [Symbol.dispose]: release };
}

/**
 * Claims this network namespace. What bears podnet's mark and has no row is removed at start, so two
 * daemons with different state directories must not look after the same kernel. An abstract socket is
 * per network namespace and ends with the process. Throws `ALREADY_RUNNING`.
 */
export async function lockNetns(bridge: string): Promise<Lock> {
  const server = createServer((socket) => socket.destroy());
  const claim = (): Promise<void> =>
    new Promise((resolve, reject) => {
      server.once("error", reject);
      server.listen("\0podnet/daemon", resolve);
    });
  await crossAsync("socket", "claim network namespace", claim).catch((cause: unknown) => {
    server.close();
    throw alreadyRunning(
      "looks after this network namespace",
      `Two daemons would remove each other's ports of "${bridge}": stop the other one, or run this one in a network namespace of its own`,
      cause,
    );
  });
  server.unref();
  const release = (): void => {
    server.close();
  };
  return { release, [Symbol.dispose]: release };
}
