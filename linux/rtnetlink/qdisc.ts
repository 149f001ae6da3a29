import { optional } from "./optional.ts";
import type { Attributes } from "./attributes.ts";
import { RTM_DELQDISC, RTM_GETQDISC, RTM_NEWQDISC } from "./constants.ts";
import { NLM_F_CREATE, NLM_F_ECHO, NLM_F_EXCL, NLM_F_REPLACE, type Request } from "./message.ts";
import { malformed, Reader } from "./reader.ts";
import {
  ingressHandle,
  readTcmsg,
  TC_H_INGRESS,
  TC_H_ROOT,
  TCA_KIND,
  TCA_OPTIONS,
  tcmsg,
  type TrafficControlHeader,
} from "./traffic-control.ts";
import { Writer } from "./writer.ts";

// include/uapi/linux/pkt_sched.h (Linux 6.1)
const TCA_TBF_PARMS = 1;
const TCA_TBF_RATE64 = 4;
const TCA_TBF_BURST = 6;
const TC_LINKLAYER_ETHERNET = 1;
// struct tc_tbf_qopt: two tc_ratespec { u8 cell_log, linklayer; u16 overhead; s16 cell_align; u16
// mpu; u32 rate }, u32 limit, buffer, mtu.
const tbfSize = 36;
/** Value of the 32-bit field of a rate when the rate itself does not fit into it. */
const beyond32 = 0xffffffff;
/** The kernel reports a bucket in ticks of 64 ns. */
const nanosecondsPerTick = 64;

/** A token bucket: what leaves by a link is held to a rate. */
export interface TokenBucket {
  /** Bytes a second, at most 2^53. */
  readonly rate: number;
  /** Bytes that may leave at once after a rest, below 2^32. */
  readonly burst: number;
  /** Bytes that may wait; what comes beyond is dropped. */
  readonly limit: number;
  /**
   * The least that a packet costs, bytes below 2^16; absent: its length. Linux 5.17, and stable
   * kernels of that time, honour it (fb80445c438c).
   */
  readonly leastCost?: number;
}

/** Which queue of a link: the first, which decides when a packet leaves, or the one inside it. */
export type QueuePlace = "root" | "inner";

/**
 * The handle of the root queues that podnet makes, which is its mark on them: 73. The kernel gives
 * 0x8001 and higher itself.
 */
export const ourQueue = 0x73_0000;
/** The handle of the queue inside. */
const ourInnerQueue = 0x74_0000;
/** The only class of a token bucket, in which its inner queue is. */
const innerClass = ourQueue | 1;

/** A token bucket according to the kernel. */
export interface ObservedBucket {
  readonly rate: number;
  readonly limit: number;
  /** 0: a packet costs its length. */
  readonly leastCost: number;
  /**
   * How long a full bucket lasts at the rate; the kernel does not report it in bytes, and only up
   * to 274 s.
   */
  readonly fullNanoseconds: number;
}

/** A queue of a link. */
export interface Qdisc extends TrafficControlHeader {
  /** `tbf`, `ingress`, `noqueue`, … */
  readonly kind: string;
  readonly tbf?: ObservedBucket;
}

/** Parses the payload of RTM_NEWQDISC or RTM_DELQDISC. Throws `NETLINK_FAILED`. */
export function parseQdisc(payload: Uint8Array): Qdisc {
  const { header, attributes } = readTcmsg(payload, "a qdisc");
  const kind = attributes.text(TCA_KIND) ?? "";
  const options = kind === "tbf" ? attributes.nested(TCA_OPTIONS) : undefined;
  return { ...header, kind, ...optional("tbf", options && readBucket(options)) };
}

function readBucket(options: Attributes): ObservedBucket | undefined {
  const parms = options.get(TCA_TBF_PARMS);
  if (parms === undefined) return undefined;
  const reader = new Reader(parms, "a token bucket");
  const rate = reader.u32(8);
  return {
    rate: rate === beyond32 ? (readRate64(options) ?? rate) : rate,
    limit: reader.u32(24),
    leastCost: reader.u16(6),
    fullNanoseconds: reader.u32(28) * nanosecondsPerTick,
  };
}

function readRate64(options: Attributes): number | undefined {
  const value = options.get(TCA_TBF_RATE64);
  if (value === undefined) return undefined;
  if (value.length < 8) throw malformed(`a rate of ${value.length} bytes`);
  return Number(new DataView(value.buffer, value.byteOffset).getBigUint64(0, true));
}

/**
 * Holds what leaves by a link to a rate, in place of a foreign queue. An own bucket changes its
 * rate, and keeps what waits in it. One inside needs one of ours around it.
 */
export function setTokenBucket(
  index: number,
  { rate, burst, limit, leastCost = 0 }: TokenBucket,
  place: QueuePlace = "root",
): Request {
  const parms = new Writer();
  // (With the link layer given as Ethernet, the kernel needs no table of costs.)
  parms.u8(0).u8(TC_LINKLAYER_ETHERNET).u16(0).u16(0).u16(leastCost);
  parms.u32(Math.min(rate, beyond32));
  // No peak rate; and no bucket in ticks, for TCA_TBF_BURST says it in bytes.
  parms.u32(0).u32(0).u32(0).u32(limit).u32(0).u32(0);
  const rate64 = new Uint8Array(8);
  new DataView(rate64.buffer).setBigUint64(0, BigInt(rate), true);
  const writer = header(index, place)
    .attributeText(TCA_KIND, "tbf")
    .nested(TCA_OPTIONS, (options) => {
      options.attribute(TCA_TBF_PARMS, parms.finish().subarray(0, tbfSize));
      options.attributeU32(TCA_TBF_BURST, burst);
      if (rate >= beyond32) options.attribute(TCA_TBF_RATE64, rate64);
    });
  return {
    type: RTM_NEWQDISC,
    flags: NLM_F_CREATE | NLM_F_REPLACE,
    payload: writer.finish(),
    what: `Cannot set the rate of link ${index}`,
  };
}

const header = (index: number, place: QueuePlace): Writer =>
  place === "root" ? tcmsg(index, ourQueue, TC_H_ROOT) : tcmsg(index, ourInnerQueue, innerClass);

/** Puts a queue without a rate in the place of the bucket inside ours. `limit`: bytes that wait. */
export const setPlainQueue = (index: number, limit: number): Request => ({
  type: RTM_NEWQDISC,
  flags: NLM_F_CREATE | NLM_F_REPLACE,
  // struct tc_fifo_qopt: u32 limit.
  payload: tcmsg(index, 0, innerClass)
    .attributeText(TCA_KIND, "bfifo")
    .attribute(TCA_OPTIONS, new Writer().u32(limit).finish())
    .finish(),
  what: `Cannot set the queue of link ${index}`,
});

/**
 * Deletes our root queue, with what is inside and waits. `ENOENT` or `EINVAL` when it is not there,
 * or foreign.
 */
export const deleteQueue = (index: number): Request => ({
  type: RTM_DELQDISC,
  flags: 0,
  payload: header(index, "root").attributeText(TCA_KIND, "tbf").finish(),
  what: `Cannot delete the queue of link ${index}`,
});

/** Gives a link a place for filters on what comes in. `EEXIST` when it has one. */
export const addIngress = (index: number): Request => ({
  type: RTM_NEWQDISC,
  flags: NLM_F_CREATE | NLM_F_EXCL,
  payload: tcmsg(index, ingressHandle, TC_H_INGRESS).attributeText(TCA_KIND, "ingress").finish(),
  what: `Cannot add an ingress queue to link ${index}`,
});

/** Deletes the ingress queue, with all filters there. `ENOENT` or `EINVAL` when there is none. */
export const deleteIngress = (index: number): Request => ({
  type: RTM_DELQDISC,
  flags: 0,
  payload: tcmsg(index, ingressHandle, TC_H_INGRESS).attributeText(TCA_KIND, "ingress").finish(),
  what: `Cannot delete the ingress queue of link ${index}`,
});

// (The kernel notifies listeners of changed queues; the requester gets the notification only if it
// asks for it with NLM_F_ECHO.)

/**
 * Asks for the egress queue of a link. `ENOENT` or `EINVAL` when it has only the one it was born
 * with.
 */
export const getRootQueue = (index: number): Request => ({
  type: RTM_GETQDISC,
  flags: NLM_F_ECHO,
  payload: tcmsg(index, 0, TC_H_ROOT).finish(),
  what: `Cannot read the queue of link ${index}`,
});

/** Asks for the queue inside our root queue. `ENOENT` or `EINVAL` without. */
export const getInnerQueue = (index: number): Request => ({
  type: RTM_GETQDISC,
  flags: NLM_F_ECHO,
  payload: tcmsg(index, 0, innerClass).finish(),
  what: `Cannot read the inner queue of link ${index}`,
});

/**
 * Asks whether a link has a place for filters on what comes in. `ENOENT` or `EINVAL` when it has
 * none.
 */
export const getIngress = (index: number): Request => ({
  type: RTM_GETQDISC,
  flags: NLM_F_ECHO,
  payload: tcmsg(index, ingressHandle, TC_H_INGRESS).finish(),
  what: `Cannot read the ingress queue of link ${index}`,
});
