import { setsockopt } from "../ffi/libc.ts";
import { checked } from "../syscall-error.ts";

// include/uapi/asm-generic/socket.h (Linux 6.1)
const SOL_SOCKET = 1;
const SO_SNDBUF = 7;
const SO_RCVBUF = 8;
const SO_SNDBUFFORCE = 32;
const SO_RCVBUFFORCE = 33;

/**
 * Sets an option whose value is an int. Answers as setsockopt(2) does: -1 when it cannot be set.
 */
export function setIntOption(fd: number, level: number, name: number, value: number): number {
  const bytes = new Uint8Array(4);
  new DataView(bytes.buffer).setInt32(0, value, true);
  return setsockopt(fd, level, name, bytes, bytes.length);
}

/**
 * Sets a socket's receive buffer to `bytes`; without CAP_NET_ADMIN limited to net.core.rmem_max.
 * Throws `SYSCALL_FAILED`; `what` could not be done.
 */
export function setReceiveBuffer(fd: number, bytes: number, what: string): void {
  if (setIntOption(fd, SOL_SOCKET, SO_RCVBUFFORCE, bytes) < 0)
    checked(setIntOption(fd, SOL_SOCKET, SO_RCVBUF, bytes), "setsockopt", what);
}

/**
 * Sets a socket's send buffer to `bytes`; without CAP_NET_ADMIN limited to net.core.wmem_max.
 * Throws `SYSCALL_FAILED`; `what` could not be done.
 */
export function setSendBuffer(fd: number, bytes: number, what: string): void {
  if (setIntOption(fd, SOL_SOCKET, SO_SNDBUFFORCE, bytes) < 0)
    checked(setIntOption(fd, SOL_SOCKET, SO_SNDBUF, bytes), "setsockopt", what);
}
