import type { Socket } from "node:net";
import { setsockopt } from "../ffi/libc.ts";
import { descriptorOf } from "./unix-socket.ts";

// include/uapi/asm-generic/socket.h, include/linux/socket.h (Linux 6.1)
const SOL_SOCKET = 1;
const SO_LINGER = 13;

/**
 * struct linger { int l_onoff; int l_linger; }: what is not sent yet is dropped, and the other end
 * is sent a RST.
 */
const atOnce = new Uint8Array(Int32Array.of(1, 0).buffer);

/**
 * Ends a TCP connection by a RST, at once. Node's own `resetAndDestroy` (24.21) ends it by a FIN
 * first; when the socket is destroyed before that has gone, by a RST of the other end say, it
 * neither closes the descriptor nor reports a `close`.
 */
export function resetConnection(socket: Socket): void {
  const fd = descriptorOf(socket);
  if (fd !== undefined) setsockopt(fd, SOL_SOCKET, SO_LINGER, atOnce, atOnce.length);
  socket.destroy();
}
