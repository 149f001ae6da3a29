import { closeSync } from "node:fs";
import { perform } from "../../core/effect.ts";
import { familyOf, type Ip, ipToBytes } from "../../core/address.ts";
import { bind, lastErrno, socket } from "../ffi/libc.ts";
import { errnoName } from "../rtnetlink/errno.ts";
import { syscallError } from "../syscall-error.ts";

// include/linux/socket.h
const AF_INET = 2;
const AF_INET6 = 10;
const SOCK_DGRAM = 2;
const SOCK_CLOEXEC = 0o2000000;

/**
 * Whether sockets can be bound to this address: the host has it, or it is the wildcard. Tries to
 * bind one, for a moment, to a port of the kernel's choice. Throws `SYSCALL_FAILED`.
 */
export function isLocalAddress(ip: Ip): boolean {
  // Every host has IPv4.
  if (ip === "0.0.0.0") return true;
  return perform("socket", "ask for an address of the host", () => canBind(ip));
}

function canBind(ip: Ip): boolean {
  const what = `Cannot ask whether ${ip} is an address of this host`;
  const four = familyOf(ip) === 4;
  const fd = socket(four ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) {
    const errno = lastErrno();
    // A kernel without IPv6 has no address of it.
    if (errnoName(errno) === "EAFNOSUPPORT") return false;
    throw syscallError("socket", errno, what);
  }
  try {
    // struct sockaddr_in { u16 family; u16 port; u8 addr[4]; … } of 16 bytes; sockaddr_in6 has flow
    // information first.
    const address = new Uint8Array(four ? 16 : 28);
    address[0] = four ? AF_INET : AF_INET6;
    address.set(ipToBytes(ip), four ? 4 : 8);
    if (bind(fd, address, address.length) === 0) return true;
    const errno = lastErrno();
    if (["EADDRNOTAVAIL", "EINVAL"].includes(errnoName(errno))) return false;
    throw syscallError("bind", errno, what);
  } finally {
    closeSync(fd);
  }
}
