import { closeSync, openSync, stat } from "node:fs";
import { PodnetError } from "../../core/errors.ts";
import { setns, unshare } from "../ffi/libc.ts";
import { checked, fileError } from "../syscall-error.ts";

// include/uapi/linux/sched.h
const CLONE_NEWNET = 0x40000000;

/**
 * The calling thread's own network namespace; not the same as /proc/self in another thread than the
 * main one.
 */
const currentPath = "/proc/thread-self/ns/net";

/**
 * Moves this process's main thread into a new, empty network namespace, for good. For tests: child
 * processes started afterwards are born in it, and it ends with the last process in it.
 */
export function unshareNetns(): void {
  startThreadPool();
  checked(unshare(CLONE_NEWNET), "unshare", "Cannot make a network namespace");
}

/**
 * Runs `body` with the calling thread in the network namespace that `path` names (`/run/netns/x`,
 * `/proc/PID/ns/net`), then goes back. Descriptors opened inside — a netlink socket, a tap — stay
 * in that namespace for good.
 *
 * `body` is synchronous: other code on this thread would meanwhile run in the wrong namespace. When
 * the way back fails the process aborts, for this reason.
 */
export function withNetns<T>(
  path: string,
  body: () => T extends PromiseLike<unknown> ? never : T,
): T {
  const what = `Cannot enter network namespace "${path}"`;
  const target = openNamespace(path, what);
  try {
    return inNamespace(target, what, body);
  } finally {
    closeSync(target);
  }
}

/** Runs in the namespace of an open descriptor; `what` begins the message when that fails. */
export function inNamespace<T>(
  target: number,
  what: string,
  body: () => T extends PromiseLike<unknown> ? never : T,
): T {
  startThreadPool();
  const home = ownNetns();
  try {
    checked(setns(target, CLONE_NEWNET), "setns", what);
    try {
      const result: T = body();
      if (result instanceof Promise)
        throw new PodnetError("INTERNAL", "A network namespace was entered with asynchronous work");
      return result;
    } finally {
      if (setns(home, CLONE_NEWNET) < 0) process.abort();
    }
  } finally {
    closeSync(home);
  }
}

/** An open descriptor of the network namespace that the calling thread is in. */
export const ownNetns = (): number =>
  openNamespace(currentPath, "Cannot determine this process's network namespace");

/**
 * Runs `body` with the calling thread in a new, empty network namespace, then goes back, as
 * `withNetns` does. The namespace ends with the last socket that was opened in it.
 */
export function withNewNetns<T>(body: () => T extends PromiseLike<unknown> ? never : T): T {
  const what = "Cannot try something in a network namespace of its own";
  startThreadPool();
  const home = ownNetns();
  try {
    checked(unshare(CLONE_NEWNET), "unshare", what);
    try {
      return body();
    } finally {
      if (setns(home, CLONE_NEWNET) < 0) process.abort();
    }
  } finally {
    closeSync(home);
  }
}

function openNamespace(path: string, what: string): number {
  try {
    return openSync(path, "r");
  } catch (error) {
    throw fileError(error, what);
  }
}

let poolStarted = false;

/**
 * libuv starts its pool at the first use, and threads inherit their maker's namespace: started
 * inside `withNetns`, four threads would stay there for good. Queueing one call starts them all
 * before it returns (libuv 1.51).
 */
function startThreadPool(): void {
  if (poolStarted) return;
  poolStarted = true;
  stat("/", () => {});
}
