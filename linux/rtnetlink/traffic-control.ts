import { type Attributes, parseAttributes } from "./attributes.ts";
import { Reader } from "./reader.ts";
import { Writer } from "./writer.ts";

/**
 * Common parts of messages about queues (qdisc) and filters. Numbers:
 * include/uapi/linux/rtnetlink.h and pkt_sched.h (Linux 6.1).
 */
export const TCA_KIND = 1;
export const TCA_OPTIONS = 2;

/** Parent of the queue for what leaves by a link. */
export const TC_H_ROOT = 0xffffffff;
/** Parent of a link's ingress queue, which delays nothing: it only holds filters. */
export const TC_H_INGRESS = 0xfffffff1;
/** The ingress queue's own handle, by which its filters name it; it is fixed. */
export const ingressHandle = 0xffff0000;

export interface TrafficControlHeader {
  /** Index of the link. */
  readonly index: number;
  readonly handle: number;
  readonly parent: number;
  readonly info: number;
}

// struct tcmsg: u8 family, u8, u16, s32 ifindex, u32 handle, u32 parent, u32 info.
const tcmsgSize = 20;

export const tcmsg = (index: number, handle: number, parent: number, info = 0): Writer =>
  new Writer().u8(0).u8(0).u16(0).i32(index).u32(handle).u32(parent).u32(info);

/** Reads header and attributes of a message about `what`. Throws `NETLINK_FAILED`. */
export function readTcmsg(
  payload: Uint8Array,
  what: string,
): { readonly header: TrafficControlHeader; readonly attributes: Attributes } {
  const reader = new Reader(payload, what);
  return {
    header: {
      index: reader.i32(4),
      handle: reader.u32(8),
      parent: reader.u32(12),
      info: reader.u32(16),
    },
    attributes: parseAttributes(reader.rest(tcmsgSize)),
  };
}
