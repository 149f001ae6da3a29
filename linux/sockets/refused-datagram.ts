import { closeSync } from "node:fs";
import { setTimeout as pause } from "node:timers/promises";
import type { Ip } from "../../core/address.ts";
import { perform } from "../../core/effect.ts";
import { connect, lastErrno, recv, send, socket } from "../ffi/libc.ts";
import { errnoName } from "../rtnetlink/errno.ts";
import { AF_INET, AF_INET6, socketAddress } from "./socket-address.ts";
import { setIntOption } from "./socket-option.ts";
import { checked } from "../syscall-error.ts";

// include/linux/net.h, include/uapi/asm-generic/socket.h (Linux 6.1)
const SOCK_DGRAM = 2;
const SOCK_NONBLOCK = 0o4000;
const SOCK_CLOEXEC = 0o2000000;
const SOL_SOCKET = 1;
const SO_NO_CHECK = 11;
const MSG_DONTWAIT = 0x40;
const MSG_NOSIGNAL = 0x4000;

/** How often it is looked whether something has come back. */
const lookEveryMs = 10;

export interface RefusedDatagramOptions {
  /** A port without a listener. */
  readonly port: number;
  /**
   * False leaves the datagram without a checksum, which IPv4 allows: its receiver then cannot check
   * it.
   */
  readonly checksum: boolean;
  readonly timeoutMs: number;
  readonly signal: AbortSignal;
}

/**
 * Sends a datagram to a port without a listener, and returns whether the other host refused it:
 * then it arrived intact, for a host silently drops a datagram with a wrong checksum. False when
 * nothing came back in time. Runs in the network namespace of the calling thread. Throws
 * `SYSCALL_FAILED`.
 */
export async function isDatagramRefused(
  address: Ip,
  { port, checksum, timeoutMs, signal }: RefusedDatagramOptions,
): Promise<boolean> {
  const what = `Cannot send a datagram to ${address}`;
  const to = socketAddress(address, port);
  const family = to[0] === AF_INET ? AF_INET : AF_INET6;
  const fd = checked(socket(family, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), "socket", what);
  try {
    if (!checksum) checked(setIntOption(fd, SOL_SOCKET, SO_NO_CHECK, 1), "setsockopt", what);
    const message = crypto.getRandomValues(new Uint8Array(64));
    perform("socket", "send a datagram that is refused", () => {
      checked(connect(fd, to, to.length), "connect", what);
      checked(send(fd, message, message.length, MSG_NOSIGNAL), "send", what);
    });
    for (const end = performance.now() + timeoutMs; performance.now() < end; ) {
      await pause(lookEveryMs);
      if (signal.aborted) return false;
      if (recv(fd, message, message.length, MSG_DONTWAIT) < 0) {
        if (errnoName(lastErrno()) === "ECONNREFUSED") return true;
      }
    }
    return false;
  } finally {
    closeSync(fd);
  }
}
