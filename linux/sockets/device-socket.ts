import { closeSync } from "node:fs";
import { familyOf, type Ip, ipToBytes } from "../../core/address.ts";
import { perform } from "../../core/effect.ts";
import type { IfName } from "../../core/names.ts";
import { decodeUtf8, encodeUtf8 } from "../../core/utf8.ts";
import { bind, getsockopt, setsockopt, socket } from "../ffi/libc.ts";
import { setIntOption, setSendBuffer } from "./socket-option.ts";
import { checked } from "../syscall-error.ts";

// include/linux/socket.h, include/linux/net.h, include/uapi/asm-generic/socket.h,
// include/uapi/linux/in.h, in6.h (Linux 6.1)
const AF_INET = 2;
const AF_INET6 = 10;
const SOCK_STREAM = 1;
const SOCK_DGRAM = 2;
const SOCK_NONBLOCK = 0o4000;
const SOCK_CLOEXEC = 0o2000000;
const SOL_SOCKET = 1;
const SO_REUSEADDR = 2;
const SO_BINDTODEVICE = 25;
const IPPROTO_IP = 0;
const IP_FREEBIND = 15;
const IPPROTO_IPV6 = 41;
const IPV6_V6ONLY = 26;
const IPV6_FREEBIND = 78;

export interface DeviceSocketOptions {
  readonly protocol: "tcp" | "udp";
  readonly link: IfName;
  readonly address: Ip;
  readonly port: number;
  /**
   * Bytes the kernel may hold of what was sent and has not left yet, of its own reckoning; its
   * usual number unless given.
   */
  readonly sendBytes?: number;
}

/**
 * A socket that receives only from one link (SO_BINDTODEVICE), bound to an address the host need
 * not have yet. Answers its descriptor, which the caller owns. Throws `SYSCALL_FAILED`;
 * `details.errno` is `ENODEV` without such a link, `EADDRINUSE` when the port is taken.
 */
export function openDeviceSocket(options: DeviceSocketOptions): number {
  const { protocol, link, address, port } = options;
  const what = `Port ${port}/${protocol} at ${address} on "${link}" cannot be had`;
  const family = familyOf(address) === 4 ? AF_INET : AF_INET6;
  const kind = protocol === "tcp" ? SOCK_STREAM : SOCK_DGRAM;
  const fd = checked(socket(family, kind | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), "socket", what);
  try {
    perform("socket", `bind a ${protocol.toUpperCase()} socket to a link`, () =>
      setUp(fd, options, what),
    );
    return fd;
  } catch (thrown) {
    closeSync(fd);
    throw thrown;
  }
}

function setUp(
  fd: number,
  { protocol, link, address, port, sendBytes }: DeviceSocketOptions,
  what: string,
): void {
  const four = familyOf(address) === 4;
  const set = (level: number, name: number): void =>
    void checked(setIntOption(fd, level, name, 1), "setsockopt", what);
  const name = encodeUtf8(`${link}\0`);
  checked(setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, name, name.length), "setsockopt", what);
  if (sendBytes !== undefined) setSendBuffer(fd, sendBytes, what);
  // Connections that rest in TIME_WAIT do not keep the next podnetd away.
  if (protocol === "tcp") set(SOL_SOCKET, SO_REUSEADDR);
  if (four) set(IPPROTO_IP, IP_FREEBIND);
  else {
    set(IPPROTO_IPV6, IPV6_V6ONLY);
    set(IPPROTO_IPV6, IPV6_FREEBIND);
  }
  // struct sockaddr_in { u16 family; be16 port; u8 addr[4]; … } of 16 bytes; sockaddr_in6 has flow
  // information first.
  const bytes = new Uint8Array(four ? 16 : 28);
  bytes[0] = four ? AF_INET : AF_INET6;
  new DataView(bytes.buffer).setUint16(2, port, false);
  bytes.set(ipToBytes(address), four ? 4 : 8);
  checked(bind(fd, bytes, bytes.length), "bind", what);
}

/**
 * The name its link has now; undefined when the link is gone, also where another one has its name.
 */
export function linkOfSocket(fd: number): string | undefined {
  const name = new Uint8Array(16);
  const length = Uint8Array.of(name.length, 0, 0, 0);
  if (getsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, name, length) < 0) return undefined;
  const end = name.indexOf(0);
  return decodeUtf8(end < 0 ? name : name.subarray(0, end)) || undefined;
}
