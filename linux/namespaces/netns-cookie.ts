import { closeSync } from "node:fs";
import { perform } from "../../core/effect.ts";
import { getsockopt, socket } from "../ffi/libc.ts";
import { checked } from "../syscall-error.ts";

// include/linux/socket.h, include/linux/net.h, include/uapi/asm-generic/socket.h (Linux 6.1)
const AF_UNIX = 1;
const SOCK_DGRAM = 2;
const SOCK_CLOEXEC = 0o2000000;
const SOL_SOCKET = 1;
const SO_NETNS_COOKIE = 71;

/**
 * The kernel's number for the network namespace that the calling thread is in, which no other one
 * has until the next boot: inodes are given anew at once. Undefined before Linux 5.14. Throws
 * `SYSCALL_FAILED`.
 */
export const netnsCookie = (): bigint | undefined =>
  perform("socket", "read namespace's cookie", () => {
    const fd = checked(
      socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0),
      "socket",
      "Cannot determine which network namespace it is",
    );
    try {
      const cookie = new BigUint64Array(1);
      const length = new Uint8Array(Uint32Array.of(cookie.byteLength).buffer);
      const bytes = new Uint8Array(cookie.buffer);
      return getsockopt(fd, SOL_SOCKET, SO_NETNS_COOKIE, bytes, length) < 0 ? undefined : cookie[0];
    } finally {
      closeSync(fd);
    }
  });
