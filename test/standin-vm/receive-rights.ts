import { closeSync } from "node:fs";
import { addressOf, fcntl, lastErrno, recvmsg } from "../../linux/ffi/libc.ts";
import { pollFd } from "../../linux/ffi/poll.ts";

// include/linux/socket.h, fcntl.h
const MSG_DONTWAIT = 0x40;
const MSG_CMSG_CLOEXEC = 0x4000_0000;
const SCM_RIGHTS = 1;
const EAGAIN = 11;
const EINTR = 4;
const F_DUPFD_CLOEXEC = 1030;
/** Bytes of a cmsghdr before its data. */
const cmsgHead = 16;

export interface Received {
  readonly bytes: Uint8Array;
  /** Descriptors that came with the bytes; now the receiver's. */
  readonly fds: readonly number[];
}

export interface Receiver {
  received(what: Received): void;
  /** The other end has closed, or is gone. */
  ended(): void;
}

/**
 * Reads a unix socket with recvmsg, which Node does not: it drops descriptors. Answers what stops
 * it.
 */
export function receive(socketFd: number, receiver: Receiver): () => void {
  // libuv has one watcher per descriptor, and the socket's own writes need theirs.
  const fd = fcntl(socketFd, F_DUPFD_CLOEXEC, 3);
  let open = true;
  const stop = (): void => {
    if (!open) return;
    open = false;
    poll.close();
    closeSync(fd);
  };
  const poll = pollFd(fd, "readable", () => {
    const got = receiveOnce(fd);
    if (got === "later") return;
    if (got !== "end") return receiver.received(got);
    stop();
    receiver.ended();
  });
  return stop;
}

function receiveOnce(fd: number): Received | "later" | "end" {
  const bytes = new Uint8Array(4096);
  const control = new Uint8Array(128);
  const vector = new Uint8Array(16);
  const iovec = new DataView(vector.buffer);
  iovec.setBigUint64(0, addressOf(bytes), true);
  iovec.setBigUint64(8, BigInt(bytes.length), true);
  const header = new Uint8Array(56);
  const msghdr = new DataView(header.buffer);
  msghdr.setBigUint64(16, addressOf(vector), true);
  msghdr.setBigUint64(24, 1n, true);
  msghdr.setBigUint64(32, addressOf(control), true);
  msghdr.setBigUint64(40, BigInt(control.length), true);
  const count = recvmsg(fd, header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (count < 0) return [EAGAIN, EINTR].includes(lastErrno()) ? "later" : "end";
  if (count === 0) return "end";
  return {
    bytes: bytes.subarray(0, count),
    fds: descriptors(control.subarray(0, Number(msghdr.getBigUint64(40, true)))),
  };
}

function descriptors(control: Uint8Array): number[] {
  const view = new DataView(control.buffer, control.byteOffset, control.length);
  if (control.length < cmsgHead || view.getInt32(12, true) !== SCM_RIGHTS) return [];
  const length = Number(view.getBigUint64(0, true));
  return Array.from({ length: (length - cmsgHead) / 4 }, (_, i) =>
    view.getInt32(cmsgHead + 4 * i, true),
  );
}
