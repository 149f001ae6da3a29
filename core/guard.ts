/**
 * All input from outside — a datagram, a connection, a frame of a guest, an event of the kernel, of
 * QEMU or of etcd — and every timer is handled inside a guard. An error that a handler does not
 * expect is a defect of podnet's: the guard reports it and drops the input that caused it, and the
 * program goes on. Pure.
 *
 * Code that does not run on input from outside needs no guard: there a defect ends podnetd, which
 * is then restarted.
 */

/** The input that a guarded handler serves. A small fixed set: it is a label of a metric. */
export type Place =
  /** Questions for names, by UDP and TCP, and answers of other servers. */
  | "dns"
  /** Requests of guests without an agent at their ports. */
  | "dhcp"
  /** Connections and datagrams to published ports. */
  | "ports"
  /** Connections and requests to the API. */
  | "api"
  /** Requests of container runtimes. */
  | "cni"
  /** Work on images. */
  | "images"
  /** Machines that wait for a pod. */
  | "pool"
  /** Events of the kernel's network. */
  | "netlink"
  /** QEMU's monitor and consoles, and its end. */
  | "qemu"
  /** Frames of guests' agents. */
  | "guest"
  /** Events of etcd. */
  | "etcd"
  /** Events of Kubernetes' API server. */
  | "kubernetes"
  /** Events of pods that policies follow. */
  | "policies"
  /** Events of pods that services follow. */
  | "services"
  /** Connections of pods that the relay passes on. */
  | "relay"
  /** Echoes and tunnels of overlays. */
  | "overlay"
  /** Timers that keep the state: checkpoints, copies, looks for room. */
  | "store";

/** Receives each defect. Must not throw. */
export type DefectWatch = (place: Place, thrown: unknown) => void;

let watch: DefectWatch | undefined;

/**
 * Sets the receiver of defects; undefined removes it. Without a receiver a guard lets every error
 * pass, so that it ends the program: tests run this way, since they must not overlook any.
 */
export function watchDefects(watcher: DefectWatch | undefined): void {
  watch = watcher;
}

/**
 * Handles input from outside at once. An error that `work` throws, or its promise rejects with, is
 * reported, and `drop` is called to release the cause. The returned promise never rejects.
 */
export function guard(place: Place, work: () => Promise<unknown>, drop?: () => void): Promise<void>;
export function guard(place: Place, work: () => void, drop?: () => void): void;
export function guard(place: Place, work: () => unknown, drop?: () => void): void | Promise<void> {
  if (watch === undefined) return work() as void | Promise<void>;
  try {
    const result = work();
    if (result instanceof Promise)
      return result.then(
        () => {},
        (thrown: unknown) => report(place, thrown, drop),
      );
  } catch (thrown) {
    report(place, thrown, drop);
  }
}

/** A handler that runs in a guard each time; `drop` is given what the handler was given. */
export function guarded<Given extends readonly unknown[]>(
  place: Place,
  handler: (...given: Given) => unknown,
  drop?: (...given: Given) => void,
): (...given: Given) => void {
  return (...given) => {
    const work = (): void => handler(...given) as void;
    guard(place, work, () => drop?.(...given));
  };
}

function report(place: Place, thrown: unknown, drop: (() => void) | undefined): void {
  watch?.(place, thrown);
  try {
    drop?.();
  } catch (second) {
    watch?.(place, second);
  }
}
