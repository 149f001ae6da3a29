import { familyOf, type Ip, ipFromBytes, ipToBytes } from "../../core/address.ts";

// include/linux/socket.h
export const AF_INET = 2;
export const AF_INET6 = 10;

/** As many bytes as an address of either family takes. */
export const socketAddressSize = 28;

/**
 * struct sockaddr_in { u16 family; be16 port; u8 addr[4]; … } of 16 bytes; sockaddr_in6 has flow
 * information first.
 */
export function socketAddress(ip: Ip, port: number): Uint8Array {
  const four = familyOf(ip) === 4;
  const bytes = new Uint8Array(four ? 16 : socketAddressSize);
  bytes[0] = four ? AF_INET : AF_INET6;
  new DataView(bytes.buffer).setUint16(2, port, false);
  bytes.set(ipToBytes(ip), four ? 4 : 8);
  return bytes;
}

/** The IP address of one that the kernel has filled in; undefined when it is of another family. */
export function ipOfSocketAddress(bytes: Uint8Array): Ip | undefined {
  if (bytes[0] === AF_INET) return ipFromBytes(bytes.subarray(4, 8));
  return bytes[0] === AF_INET6 ? ipFromBytes(bytes.subarray(8, 24)) : undefined;
}
