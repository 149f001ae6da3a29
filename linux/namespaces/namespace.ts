import { closeSync, constants, fstatSync, openSync, statfsSync } from "node:fs";
import { PodnetError } from "../../core/errors.ts";
import { ioctlNumber, lastErrno } from "../ffi/libc.ts";
import { inNamespace, ownNetns } from "./netns.ts";
import { errnoName } from "../rtnetlink/errno.ts";

/** File system type of /proc/PID/ns and `ip netns` entries: include/uapi/linux/magic.h. */
const NSFS_MAGIC = 0x6e736673;
// include/uapi/linux/nsfs.h, sched.h
const NS_GET_NSTYPE = 0xb703;
const CLONE_NEWNET = 0x40000000;

/** Why a path leads to no network namespace that can be worked in. */
export type NamespaceTrouble = "absent" | "not-a-namespace" | "own" | "unreadable" | "another";

/**
 * A foreign network namespace, held open: it exists, with the same identity, until this is closed,
 * even if the path changes meanwhile.
 */
export class NetworkNamespace implements Disposable {
  readonly path: string;
  /** For links that are to be born in it, or moved to it. */
  readonly fd: number;
  /** Identifies the namespace, independently of its path, while it is held: `DEVICE:INODE`. */
  readonly identity: string;

  private constructor(path: string, fd: number, identity: string) {
    this.path = path;
    this.fd = fd;
    this.identity = identity;
  }

  /**
   * Opens the namespace at a path: `/run/netns/x`, `/proc/PID/ns/net`. Never blocks, whatever the
   * path leads to.
   *
   * Throws `NETNS_UNUSABLE`; `details.trouble` is a `NamespaceTrouble`. `own` is this process's
   * namespace, where links of containers must not be set up.
   */
  static open(path: string): NetworkNamespace {
    const fd = openPath(path);
    try {
      if (statfsSync(`/proc/self/fd/${fd}`).type !== NSFS_MAGIC || kindOf(fd) !== CLONE_NEWNET)
        throw unusable(path, "not-a-namespace");
      const identity = identityOf(fd);
      if (identity === ownIdentity()) throw unusable(path, "own");
      return new NetworkNamespace(path, fd, identity);
    } catch (error) {
      closeSync(fd);
      throw error;
    }
  }

  /**
   * Runs `body` with this thread in the namespace, as `withNetns` does: what it opens stays there
   * ever after.
   */
  enter<T>(body: () => T extends PromiseLike<unknown> ? never : T): T {
    return inNamespace(this.fd, `Cannot enter network namespace "${this.path}"`, body);
  }

  [Symbol.dispose](): void {
    closeSync(this.fd);
  }
}

/**
 * (A path may be anything: a pipe is not waited for, a terminal does not become this process's.)
 */
function openPath(path: string): number {
  try {
    return openSync(path, constants.O_RDONLY | constants.O_NONBLOCK | constants.O_NOCTTY);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    const gone = code === "ENOENT" || code === "ENOTDIR" || code === "ENXIO" || code === "ESRCH";
    throw unusable(path, gone ? "absent" : "unreadable", error);
  }
}

const identityOf = (fd: number): string => {
  const { dev, ino } = fstatSync(fd, { bigint: true });
  return `${dev}:${ino}`;
};

function ownIdentity(): string {
  const fd = ownNetns();
  try {
    return identityOf(fd);
  } finally {
    closeSync(fd);
  }
}

/** CLONE_NEW… of a namespace. */
function kindOf(fd: number): number {
  const kind = ioctlNumber(fd, NS_GET_NSTYPE, 0);
  if (kind >= 0) return kind;
  throw new PodnetError("SYSCALL_FAILED", "Cannot determine the kind of namespace", {
    details: { syscall: "NS_GET_NSTYPE", errno: errnoName(lastErrno()) },
  });
}

const troubles: Readonly<Record<NamespaceTrouble, readonly [says: string, hint: string]>> = {
  absent: ["is not there", "It may have been deleted meanwhile; make the sandbox again"],
  "not-a-namespace": [
    "is no network namespace",
    "Give the path of one, as `ip netns add` makes it; a file that is left of one is of no use",
  ],
  own: ["is podnetd's own", "Give the container a network namespace of its own"],
  unreadable: [
    "cannot be opened",
    "Let podnetd open it: paths below /proc belong to those who may trace the process",
  ],
  another: [
    "is another one by now",
    "The container's own is gone, and nothing is made in this one; take the container off its network (DEL)",
  ],
};

/** Why a foreign namespace is not used. */
export function unusable(path: string, trouble: NamespaceTrouble, cause?: unknown): PodnetError {
  const [says, hint] = troubles[trouble];
  return new PodnetError("NETNS_UNUSABLE", `Network namespace "${path}" ${says}`, {
    hint,
    details: { path, trouble },
    ...(cause === undefined ? {} : { cause }),
  });
}
