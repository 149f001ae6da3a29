import { closeSync } from "node:fs";
import { perform } from "../../core/effect.ts";
import { type Ip, ipToBytes } from "../../core/address.ts";
import { bind, socket } from "../ffi/libc.ts";
import { setIntOption, setReceiveBuffer } from "./socket-option.ts";
import { checked } from "../syscall-error.ts";

// include/linux/socket.h, include/uapi/asm-generic/socket.h, include/uapi/linux/udp.h (Linux 6.1)
const AF_INET = 2;
const SOCK_DGRAM = 2;
const SOCK_NONBLOCK = 0o4000;
const SOCK_CLOEXEC = 0o2000000;
const SOL_SOCKET = 1;
const SO_SNDBUFFORCE = 32;
export const SOL_UDP = 17;
export const UDP_SEGMENT = 103;
export const UDP_GRO = 104;

/** Size of both queues, in the kernel's accounting: some thousand datagrams of 1,500 bytes. */
const queueBytes = 8 << 20;

export interface DatagramSocket extends Disposable {
  readonly fd: number;
}

/**
 * An IPv4 UDP socket in the calling thread's network namespace, bound, never blocking, that
 * receives several datagrams of one sender at once. Throws `SYSCALL_FAILED`; `details.errno` is
 * `EADDRINUSE` when the port is taken.
 */
export function openDatagramSocket(address: Ip, port: number): DatagramSocket {
  const what = `Cannot listen on ${address}:${port} (UDP)`;
  const fd = perform("socket", "open datagram socket", () =>
    checked(socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), "socket", what),
  );
  try {
    setReceiveBuffer(fd, queueBytes, what);
    // (Best effort: without CAP_NET_ADMIN it is as large as the host has it.)
    setIntOption(fd, SOL_SOCKET, SO_SNDBUFFORCE, queueBytes);
    // Best effort as well: a kernel before 5.0 gives each by itself.
    setIntOption(fd, SOL_UDP, UDP_GRO, 1);
    // struct sockaddr_in { u16 family; be16 port; u8 addr[4]; u8 zero[8]; }
    const name = new Uint8Array(16);
    new DataView(name.buffer).setUint16(0, AF_INET, true);
    new DataView(name.buffer).setUint16(2, port);
    name.set(ipToBytes(address), 4);
    perform("socket", "bind datagram socket", () =>
      checked(bind(fd, name, name.length), "bind", what),
    );
  } catch (error) {
    closeSync(fd);
    throw error;
  }
  return { fd, [Symbol.dispose]: () => closeSync(fd) };
}
