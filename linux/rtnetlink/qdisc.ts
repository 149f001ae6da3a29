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
}

/** A token bucket according to the kernel. */
export interface ObservedBucket {
  readonly rate: number;
  readonly limit: number;
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
    fullNanoseconds: reader.u32(28) * nanosecondsPerTick,
  };
}

function readRate64(options: Attributes): number | undefined {
  const value = options.get(TCA_TBF_RATE64);
  if (value === undefined) return undefined;
  if (value.length < 8) throw malformed(`a rate of ${value.length} bytes`);
  return Number(new DataView(value.buffer, value.byteOffset).getBigUint64(0, true));
}

/** Holds what leaves by a link to a rate, in place of whatever queue it had. */
export function setTokenBucket(index: number, { rate, burst, limit }: TokenBucket): Request {
  const parms = new Writer();
  // (With the link layer given as Ethernet, the kernel needs no table of costs.)
  parms.u8(0).u8(TC_LINKLAYER_ETHERNET).u16(0).u16(0).u16(0).u32(Math.min(rate, beyond32));
  // No peak rate; and no bucket in ticks, for TCA_TBF_BURST says it in bytes.
  parms.u32(0).u32(0).u32(0).u32(limit).u32(0).u32(0);
  const rate64 = new Uint8Array(8);
  new DataView(rate64.buffer).setBigUint64(0, BigInt(rate), true);
  const writer = tcmsg(index, 0, TC_H_ROOT)
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
