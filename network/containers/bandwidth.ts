import type { ObservedBucket, TokenBucket } from "../../linux/rtnetlink/qdisc.ts";
import type { RateLimit } from "./desired.ts";

/** The bytes of a frame in addition to its contents: addresses, type, and a VLAN's tag. */
const frameHeader = 18;
/** How long packets may queue at the limited rate, in addition to those that may leave at once. */
const latencySeconds = 0.025;
/**
 * The smallest queue: the bytes that a sender hands over at once when the link does the
 * segmentation.
 */
const leastWaiting = 64 << 10;
/** The largest queue: the memory that a host can spare for each of a thousand containers. */
const mostWaiting = 16 << 20;
/**
 * The kernel reports the duration of a bucket in 32 bits of 64 ns: a longer one could not be
 * compared with the wanted one.
 */
const longestBucketSeconds = 250;
const most32 = 0xffffffff;

/**
 * The bucket for a limit, within the kernel's range: at least a frame, and never so large that it
 * limits nothing. Pure.
 */
export function bucketOf({ bitsPerSecond, burstBits }: RateLimit, mtu: number): TokenBucket {
  const frame = mtu + frameHeader;
  const rate = Math.max(Math.ceil(frame / longestBucketSeconds), Math.floor(bitsPerSecond / 8));
  const longest = Math.min(most32, rate * longestBucketSeconds);
  const burst = Math.max(frame, Math.min(Math.floor(burstBits / 8), longest));
  const waiting = Math.floor(rate * latencySeconds) + burst;
  return { rate, burst, limit: Math.min(Math.max(waiting, leastWaiting), mostWaiting) };
}

/**
 * The bytes that a link's bucket lets leave at once, as precisely as the kernel reports them. Pure.
 */
export const atOnce = ({ rate, fullNanoseconds }: ObservedBucket): number =>
  Math.round((fullNanoseconds / 1e9) * rate);

/** Whether a link has that bucket; the kernel's arithmetic leaves its size a little off. Pure. */
export function hasBucket(found: ObservedBucket | undefined, wanted: TokenBucket): boolean {
  if (found?.rate !== wanted.rate || found.limit !== wanted.limit) return false;
  const lasts = (wanted.burst / wanted.rate) * 1e9;
  return Math.abs(found.fullNanoseconds - lasts) <= lasts / 50 + 128;
}
