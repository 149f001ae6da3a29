import { type Family, type Ip, ipFromBytes } from "../../core/address.ts";
import { Reader } from "../rtnetlink/reader.ts";
import { Writer } from "../rtnetlink/writer.ts";

// include/uapi/linux/sock_diag.h, include/uapi/linux/inet_diag.h, include/net/tcp_states.h (Linux
// 6.1)
export const SOCK_DIAG_BY_FAMILY = 20;
const IPPROTO_TCP = 6;
const TCP_LISTEN = 10;
/**
 * struct inet_diag_sockid { be16 sport; be16 dport; be32 src[4]; be32 dst[4]; u32 if; u32
 * cookie[2]; }
 */
const idSize = 48;
/**
 * struct inet_diag_msg { u8 family; u8 state; u8 timer; u8 retrans; id; u32 expires, rqueue,
 * wqueue, uid, inode; }
 */
const place = { family: 0, sport: 4, source: 8, uid: 64, inode: 68 } as const;
const AF_INET = 2;
const AF_INET6 = 10;

/** A TCP socket that takes connections. */
export interface Listener {
  readonly address: Ip;
  readonly port: number;
  readonly uid: number;
  readonly inode: number;
}

/** Asks for the TCP sockets of a family that listen; at one port alone if one is given. */
export function listenersAt(family: Family, port: number | undefined): Uint8Array {
  const writer = new Writer()
    .u8(family === 4 ? AF_INET : AF_INET6)
    .u8(IPPROTO_TCP)
    // No extensions, and padding.
    .u8(0)
    .u8(0)
    .u32(1 << TCP_LISTEN);
  const id = new Uint8Array(idSize);
  new DataView(id.buffer).setUint16(0, port ?? 0);
  return writer.raw(id).finish();
}

/** Reads one of the answers. Throws `NETLINK_FAILED` when it is too short. */
export function parseListener(payload: Uint8Array): Listener {
  const reader = new Reader(payload, "inet_diag_msg");
  const four = reader.u8(place.family) === AF_INET;
  const inode = reader.u32(place.inode);
  const bytes = payload.subarray(place.source, place.source + (four ? 4 : 16));
  const port = (reader.u8(place.sport) << 8) | reader.u8(place.sport + 1);
  return { address: ipFromBytes(bytes), port, uid: reader.u32(place.uid), inode };
}
