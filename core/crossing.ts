/**
 * Every call that leaves this process passes through here, so that a test can stop it before or
 * after: the failpoints of the crash tests are these crossings, and there is no other list of them.
 * Pure, and nothing but a branch unless somebody watches.
 */

/** What is on the other side. */
export type Border =
  /** A message to the kernel's rtnetlink. */
  | "netlink"
  /** A system call on a device: taps. */
  | "ioctl"
  /** A command run to its end: iptables. */
  | "command"
  /** A transaction of the state database. */
  | "commit"
  /** A file made, changed or removed; a setting below /proc/sys. */
  | "file"
  /** A process started that outlives the call: QEMU. */
  | "spawn"
  /** A signal to a process. */
  | "signal"
  /** A socket opened, bound or connected. */
  | "socket"
  /** A QMP command. */
  | "qmp"
  /** A frame to the guest's agent, or what is typed on its console. */
  | "channel"
  /** A call to etcd. */
  | "etcd";

export type Side = "before" | "after";

/**
 * One call that leaves the process: `what` names it, the same in every run (no ids, pids or random
 * names).
 */
export interface Crossing {
  readonly border: Border;
  readonly what: string;
}

/** Told of every crossing; may throw to make it fail, wait, or never return. */
export interface CrossingWatch {
  /** At a synchronous call. */
  at(crossing: Crossing, side: Side): void;
  /**
   * At an asynchronous one. What would end the call's own wait ends this one: `limit`, if the call
   * has any.
   */
  atAsync(crossing: Crossing, side: Side, limit: AbortSignal | undefined): Promise<void>;
  /** The call threw, and has no `after`. */
  failed?(crossing: Crossing): void;
}

let watch: CrossingWatch | undefined;

/**
 * Sets who watches; undefined ends it. For tests and `PODNET_FAILPOINTS`, never for anything a user
 * relies on.
 */
export function watchCrossings(watcher: CrossingWatch | undefined): void {
  watch = watcher;
}

/**
 * Makes a synchronous call that leaves the process. A name that takes work to find is looked for
 * only when somebody watches.
 */
export function cross<T>(border: Border, what: string | (() => string), call: () => T): T {
  if (watch === undefined) return call();
  const crossing = { border, what: typeof what === "string" ? what : what() };
  watch.at(crossing, "before");
  let result: T;
  try {
    result = call();
  } catch (thrown) {
    watch.failed?.(crossing);
    throw thrown;
  }
  watch.at(crossing, "after");
  return result;
}

/**
 * Makes an asynchronous call that leaves the process. `limitOf` gives what ends the call when it
 * takes too long or is no longer wanted; asked only when somebody watches.
 */
export function crossAsync<T>(
  border: Border,
  what: string,
  call: () => Promise<T>,
  limitOf: () => AbortSignal | undefined = () => undefined,
): Promise<T> {
  return watch === undefined ? call() : crossWatched(watch, { border, what }, call, limitOf());
}

async function crossWatched<T>(
  watcher: CrossingWatch,
  crossing: Crossing,
  call: () => Promise<T>,
  limit: AbortSignal | undefined,
): Promise<T> {
  await watcher.atAsync(crossing, "before", limit);
  let result: T;
  try {
    result = await call();
  } catch (thrown) {
    watcher.failed?.(crossing);
    throw thrown;
  }
  await watcher.atAsync(crossing, "after", limit);
  return result;
}
