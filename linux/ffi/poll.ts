import koffi from "koffi";

/**
 * Readiness of a descriptor that libuv does not know. Stop and start rearm it after an error event.
 */
export interface Poll {
  start(): void;
  stop(): void;
  close(): void;
  /** Lets the process end although this poll is active. */
  unref(): void;
}

/**
 * Calls back whenever `fd` is ready, on Node's own event loop (libuv's uv_poll, through koffi). One
 * descriptor has at most one poll per loop; poll a duplicate of a descriptor that a `net.Socket`
 * owns.
 *
 * After an error on the descriptor (a netlink overrun is one) libuv stops the watch silently: call
 * `stop` and `start`.
 */
export function pollFd(fd: number, wanted: "readable" | "writable", ready: () => void): Poll {
  const options = { [wanted]: true };
  const watch = koffi.node.poll(fd, options, ready);
  return {
    start: () => watch.start(options, ready),
    stop: () => watch.stop(),
    close: () => watch.close(),
    unref: () => watch.unref(),
  };
}
