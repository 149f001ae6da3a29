import { readdirSync } from "node:fs";
import { fcntl } from "../ffi/libc.ts";

const F_GETFD = 1;
const F_SETFD = 2;
const FD_CLOEXEC = 1;

/**
 * Marks every descriptor above standard error as not to be inherited by programs started from here
 * on. Node opens its own that way; what a shell or supervisor left open in us would otherwise live
 * on in every QEMU.
 */
export function closeAllOnExec(): void {
  for (const name of readdirSync("/proc/self/fd")) {
    const fd = Number(name);
    // The descriptor of the listing itself is closed by now: fcntl fails, and nothing is lost.
    const flags = fd > 2 ? fcntl(fd, F_GETFD, 0) : -1;
    if (flags >= 0 && (flags & FD_CLOEXEC) === 0) fcntl(fd, F_SETFD, flags | FD_CLOEXEC);
  }
}
