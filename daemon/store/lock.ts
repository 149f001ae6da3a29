import { mkdirSync } from "node:fs";
import { createServer } from "node:net";
import { dirname, join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { perform, performAsync } from "../../core/effect.ts";
import { PodnetError, toPodnetError } from "../../core/errors.ts";
import type { CgroupLayout } from "../../hypervisor/jail/cgroup-layout.ts";
import { lockDirectory as lockOpened, lockFile } from "../../linux/files/file-lock.ts";
import type { Config } from "../config/config.ts";

/**
 * Held by a daemon while it runs; the kernel releases it when the process ends, however it ends.
 */
export interface Lock extends Disposable {
  release(): void;
}

const alreadyRunning = (what: string, hint: string, cause?: unknown): PodnetError =>
  new PodnetError("ALREADY_RUNNING", `Another podnetd already ${what}`, { hint, cause });

/** Locks the state directory, see `lockDirectory`. */
export const lockState = (stateDir: string): Lock =>
  lockDirectory(stateDir, { what: "State directory", flag: "--state-dir" });

/**
 * Locks the directory of the pods' disks: what has no row there is taken away by `podnet down`. See
 * `lockDirectory`.
 */
export const lockDisks = (disksDir: string): Lock =>
  lockDirectory(disksDir, { what: "Disks directory", flag: "--disks-dir" });

/**
 * Makes a directory, and locks it. SQLite holds an exclusive transaction on `lock.db`: a record
 * lock on a file, so it works across network namespaces and ends with the process. Throws
 * `ALREADY_RUNNING` or `STATE_UNWRITABLE`.
 */
function lockDirectory(
  directory: string,
  { what, flag }: { readonly what: string; readonly flag: string },
): Lock {
  const name = what.toLowerCase();
  let database: DatabaseSync | undefined;
  try {
    perform("file", `make ${name}`, () => mkdirSync(directory, { recursive: true, mode: 0o700 }));
    const opened = new DatabaseSync(join(directory, "lock.db"), { timeout: 0, open: false });
    database = opened;
    perform("file", `lock ${name}`, () => {
      opened.open();
      // The lock never writes: a journal would take room, which a full filesystem does not have.
      opened.exec("PRAGMA journal_mode = MEMORY; BEGIN EXCLUSIVE");
    });
  } catch (cause) {
    if (database?.isOpen) database.close();
    if (/locked|busy/i.test(toPodnetError(cause).message)) {
      throw alreadyRunning(
        `uses the ${name} "${directory}"`,
        `Use the one that runs (\`podnet info\`), stop it, or choose another ${flag}`,
        cause,
      );
    }
    throw new PodnetError("STATE_UNWRITABLE", `${what} "${directory}" cannot be written`, {
      hint: `Give podnetd's user write access to it, free some space, or choose another ${flag}`,
      cause,
    });
  }
  const held = database;
  const release = (): void => {
    if (held.isOpen) perform("file", `unlock ${name}`, () => held.close());
  };
  return { release, [Symbol.dispose]: release };
}

/**
 * Claims this network namespace. A start removes everything that bears podnet's mark and has no
 * row, so two daemons with different state directories must not manage one kernel. An abstract
 * socket is per network namespace and ends with the process. Throws `ALREADY_RUNNING`.
 */
export async function lockNetns(bridge: string): Promise<Lock> {
  const server = createServer((socket) => socket.destroy());
  const claim = (): Promise<void> =>
    new Promise((resolve, reject) => {
      server.once("error", reject);
      server.listen("\0podnet/daemon", resolve);
    });
  await performAsync("socket", "claim network namespace", claim).catch((cause: unknown) => {
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

/** A lock that cannot be had for another reason than another podnetd. */
const notLocked = (what: string, path: string, cause: unknown): PodnetError =>
  what === "socket"
    ? new PodnetError("PREFLIGHT_FAILED", `Cannot listen on "${path}"`, {
        hint: "Check that its directory is there and writable, or set another socket",
        cause,
      })
    : new PodnetError("STATE_UNWRITABLE", `The ${what} "${path}" cannot be locked`, {
        hint: "Give podnetd's user access to it, free some space, or choose another one",
        cause,
      });

/** A directory or a socket that one podnetd at a time uses. */
interface Place {
  /** For people: `run directory`. */
  readonly what: string;
  readonly path: string;
  /** The setting that leads elsewhere. */
  readonly flag: string;
  lock(path: string): Disposable | undefined;
}

/**
 * Locks what this podnetd will change apart from its state: the run directory, the disks, the
 * sockets, what plugins write down. Machines, sockets and disks there that it knows nothing of
 * belong to the podnetd that has the lock. The locks are on files, so that they hold across network
 * and mount namespaces. Throws `ALREADY_RUNNING`, `STATE_UNWRITABLE`, `PREFLIGHT_FAILED` for a
 * socket whose directory cannot be written.
 */
export function lockPlaces(config: Config): Lock {
  return lockAll([
    directory("run directory", config.runDir, "--run-dir"),
    directory("directory of disks", config.disksDir, "--disks-dir"),
    ...socketPlaces(config),
    // In the state directory it is locked with that.
    ...(config.cni.enabled && dirname(config.cni.pendingDir) !== config.stateDir
      ? [pendingPlace(config.cni.pendingDir)]
      : []),
  ]);
}

/**
 * Locks the directories that the control groups of machines are made in. Throws `ALREADY_RUNNING`.
 */
export function lockCgroups(layout: CgroupLayout): Lock {
  const directories = layout.version === 2 ? [layout.directory] : [layout.memory, layout.pids];
  return lockAll(directories.map((path) => directory("control group", path, "--qemu-cgroup")));
}

const directory = (what: string, path: string, flag: string): Place => ({
  what,
  path,
  flag,
  lock: lockOpened,
});

/**
 * A socket in the run directory is locked with it; any other has a file alongside it, since its
 * directory may be others' too.
 */
function socketPlaces({ runDir, socket, cni }: Config): Place[] {
  const sockets = [
    { path: socket, flag: "--socket" },
    ...(cni.enabled ? [{ path: cni.socket, flag: "--cni-socket" }] : []),
  ];
  return sockets
    .filter(({ path }) => dirname(path) !== runDir)
    .map(({ path, flag }) => ({
      what: "socket",
      path,
      flag,
      lock: (of) => lockFile(`${of}.lock`),
    }));
}

/** Plugins make it when they need it, and podnetd may not be allowed to look into it. */
const pendingPlace = (path: string): Place => ({
  ...directory("directory of pending DELs", path, "--cni-pending-dir"),
  lock: (of) => {
    try {
      return lockOpened(of);
    } catch {
      return { [Symbol.dispose]() {} };
    }
  },
});

function lockAll(places: readonly Place[]): Lock {
  using locks = new DisposableStack();
  for (const { what, path, flag, lock } of places) {
    const held = perform("file", `lock ${what}`, () => tryLock(lock, what, path));
    if (held === undefined)
      throw alreadyRunning(
        `uses the ${what} "${path}"`,
        `Use the one that runs (\`podnet info\`), stop it, or choose another ${flag}`,
      );
    locks.use(held);
  }
  const held = locks.move();
  const release = (): void => held.dispose();
  return { release, [Symbol.dispose]: release };
}

function tryLock(lock: Place["lock"], what: string, path: string): Disposable | undefined {
  try {
    return lock(path);
  } catch (cause) {
    throw notLocked(what, path, cause);
  }
}
