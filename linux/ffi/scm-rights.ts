import { addressOf, lastErrno, sendmsg } from "./libc.ts";

// include/linux/socket.h
const SOL_SOCKET = 1;
const SCM_RIGHTS = 1;
const MSG_DONTWAIT = 0x40;
const MSG_NOSIGNAL = 0x4000;

/**
 * One `sendmsg` of `bytes` with a copy of `fd` attached to the first byte (SCM_RIGHTS, unix(7)).
 * Never blocks. Returns the number of bytes taken, or minus the error number.
 */
export function sendRights(socketFd: number, bytes: Uint8Array, fd: number): number {
  // struct cmsghdr { size_t len; int level; int type; } and one int, padded to 24 bytes.
  const control = new Uint8Array(24);
  const cmsg = new DataView(control.buffer);
  cmsg.setBigUint64(0, 20n, true);
  cmsg.setInt32(8, SOL_SOCKET, true);
  cmsg.setInt32(12, SCM_RIGHTS, true);
  cmsg.setInt32(16, fd, true);

  // struct iovec { void *base; size_t len; }
  const vector = new Uint8Array(16);
  const iovec = new DataView(vector.buffer);
  iovec.setBigUint64(0, addressOf(bytes), true);
  iovec.setBigUint64(8, BigInt(bytes.length), true);

  // struct msghdr { name, namelen, iov, iovlen, control, controllen, flags }, 56 bytes.
  const header = new Uint8Array(56);
  const msghdr = new DataView(header.buffer);
  msghdr.setBigUint64(16, addressOf(vector), true);
  msghdr.setBigUint64(24, 1n, true);
  msghdr.setBigUint64(32, addressOf(control), true);
  msghdr.setBigUint64(40, BigInt(control.length), true);

  const sent = sendmsg(socketFd, header, MSG_DONTWAIT | MSG_NOSIGNAL);
  return sent < 0 ? -lastErrno() : sent;
}
