import type { ObservedBucket, TokenBucket } from "../../linux/rtnetlink/qdisc.ts";
import type { RateLimit } from "./desired.ts";

/** What a frame has alongside its contents: addresses, type, and a VLAN's tag. */
const frameHeader = 18;
/** How long what waits may wait at the rate, alongside what may leave at once. */
const latencySeconds = 0.025;
/**
 * What waits is at least what a sender hands over at once that leaves cutting it up to the link, …
 */
const leastWaiting = 64 << 10;
/** … and at most what a host can spare for each of a thousand. */
const mostWaiting = 16 << 20;
/**
 * The kernel tells how long a bucket lasts in 32 bits of 64 ns: what lasts longer could not be
 * compared with what is wanted.
 */
const longestBucketSeconds = 250;
const most32 = 0xffffffff;

/**
 * The bucket for a limit, within what the kernel takes: at least a frame, and never so much that it
 * means nothing. Pure.
 */
export function bucketOf({ bitsPerSecond, burstBits }: RateLimit, mtu: number): TokenBucket {
  const frame = mtu + frameHeader;
  const rate = Math.max(Math.ceil(frame / longestBucketSeconds), Math.floor(bitsPerSecond / 8));
  const longest = Math.min(most32, rate * longestBucketSeconds);
  const burst = Math.max(frame, Math.min(Math.floor(burstBits / 8), longest));
  const waiting = Math.floor(rate * latencySeconds) + burst;
  return { rate, burst, limit: Math.min(Math.max(waiting, leastWaiting), mostWaiting) };
}

/** What may go at once by a link's bucket, bytes: as near as the kernel tells. Pure. */
export const atOnce = ({ rate, fullNanoseconds }: ObservedBucket): number =>
  Math.round((fullNanoseconds / 1e9) * rate);

/** Whether a link has that bucket; the kernel's arithmetic leaves its size a little off. Pure. */
export function hasBucket(found: ObservedBucket | undefined, wanted: TokenBucket): boolean {
  if (found?.rate !== wanted.rate || found.limit !== wanted.limit) return false;
  const lasts = (wanted.burst / wanted.rate) * 1e9;
  return Math.abs(found.fullNanoseconds - lasts) <= lasts / 50 + 128;
}
