/**
 * Every call that leaves this process passes through here, so that a test can stop it before or
 * after: the failpoints of the crash tests are these effects, and there is no other list of them.
 * Pure, and only a branch unless a watch is set.
 */

/** The other side of the call. */
export type Boundary =
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
  | "etcd"
  /** A request to Kubernetes' API server. */
  | "kubernetes";

export type Side = "before" | "after";

/**
 * One call that leaves the process: `what` names it, the same in every run (no ids, pids or random
 * names).
 */
export interface Effect {
  readonly boundary: Boundary;
  readonly what: string;
}

/** Notified of every effect; may throw to make it fail, wait, or never return. */
export interface EffectWatch {
  /** At a synchronous call. */
  at(effect: Effect, side: Side): void;
  /**
   * At an asynchronous call. `limit`, if the call has any, ends this wait as it ends the call's
   * own.
   */
  atAsync(effect: Effect, side: Side, limit: AbortSignal | undefined): Promise<void>;
  /** The call threw, and has no `after`. */
  failed?(effect: Effect): void;
}

let watch: EffectWatch | undefined;

/**
 * Sets who watches; undefined ends it. For tests and `PODNET_FAILPOINTS`, never for anything a user
 * relies on.
 */
export function watchEffects(watcher: EffectWatch | undefined): void {
  watch = watcher;
}

/**
 * Makes a synchronous call that leaves the process. A name that takes work to compute is given as a
 * function, called only when a watch is set.
 */
export function perform<T>(boundary: Boundary, what: string | (() => string), call: () => T): T {
  if (watch === undefined) return call();
  const effect = { boundary, what: typeof what === "string" ? what : what() };
  watch.at(effect, "before");
  let result: T;
  try {
    result = call();
  } catch (thrown) {
    watch.failed?.(effect);
    throw thrown;
  }
  watch.at(effect, "after");
  return result;
}

/**
 * Makes an asynchronous call that leaves the process. `limitOf` gives the signal that ends the call
 * when it takes too long or is cancelled; called only when a watch is set.
 */
export function performAsync<T>(
  boundary: Boundary,
  what: string,
  call: () => Promise<T>,
  limitOf: () => AbortSignal | undefined = () => undefined,
): Promise<T> {
  return watch === undefined ? call() : performWatched(watch, { boundary, what }, call, limitOf());
}

async function performWatched<T>(
  watcher: EffectWatch,
  effect: Effect,
  call: () => Promise<T>,
  limit: AbortSignal | undefined,
): Promise<T> {
  await watcher.atAsync(effect, "before", limit);
  let result: T;
  try {
    result = await call();
  } catch (thrown) {
    watcher.failed?.(effect);
    throw thrown;
  }
  await watcher.atAsync(effect, "after", limit);
  return result;
}
