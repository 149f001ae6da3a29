import type { Socket } from "node:net";
import type { Ip } from "../../core/address.ts";
import { getsockopt } from "../ffi/libc.ts";
import { ipOfSocketAddress, socketAddressSize } from "../sockets/socket-address.ts";
import { descriptorOf } from "../sockets/unix-socket.ts";

// include/uapi/linux/in.h, in6.h, netfilter_ipv4.h, netfilter_ipv6/ip6_tables.h (Linux 6.1)
const SOL_IP = 0;
const SOL_IPV6 = 41;
const SO_ORIGINAL_DST = 80;

/**
 * Where a connection went before `redirect` brought it to this host; undefined when none did, or it
 * has ended. The kernel knows it by its connection tracking, in the default zone.
 */
export function originalDestination(
  connection: Socket,
): { readonly ip: Ip; readonly port: number } | undefined {
  const fd = descriptorOf(connection);
  if (fd === undefined) return undefined;
  const level = connection.localFamily === "IPv6" ? SOL_IPV6 : SOL_IP;
  const address = new Uint8Array(socketAddressSize);
  const length = Uint8Array.of(level === SOL_IPV6 ? address.length : 16, 0, 0, 0);
  if (getsockopt(fd, level, SO_ORIGINAL_DST, address, length) < 0) return undefined;
  const ip = ipOfSocketAddress(address);
  const port = new DataView(address.buffer).getUint16(2, false);
  return ip === undefined ? undefined : { ip, port };
}
