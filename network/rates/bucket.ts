import type { ObservedBucket, TokenBucket } from "../../linux/rtnetlink/qdisc.ts";
import type { Rate } from "../model/rates.ts";

/** The bytes of a frame in addition to its contents: addresses, type, and a VLAN's tag. */
const frameHeader = 18;
/** How long packets may queue at the limited rate, in addition to those that may leave at once. */
const latencySeconds = 0.025;
/** The default burst: what the rate brings meanwhile. */
const burstSeconds = 0.05;
/** The largest default burst, which is memory: at 1 gbit and less it is the whole burst. */
const mostDefaultBurst = 8 << 20;
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
 * What a packet costs in a bucket that counts packets: no packet is longer, so each costs the same
 * (16 bits, `mpu` of tc).
 */
const packetCost = 0xffff;

/** The buckets for a rate: the first around the second, if there are two. Pure. */
export function bucketsOf(rate: Rate | undefined, mtu: number): readonly TokenBucket[] {
  const { bitsPerSecond, packetsPerSecond } = rate ?? {};
  return [
    ...(bitsPerSecond === undefined ? [] : [bucketOf({ ...rate, bitsPerSecond }, mtu)]),
    ...(packetsPerSecond === undefined ? [] : [packetBucket(packetsPerSecond, mtu)]),
  ];
}

/**
 * The bucket for a bandwidth, within the kernel's range: at least a frame, and never so large that
 * it limits nothing. Pure.
 */
export function bucketOf(
  { bitsPerSecond, burstBits }: Rate & { readonly bitsPerSecond: number },
  mtu: number,
): TokenBucket {
  const frame = mtu + frameHeader;
  const rate = Math.max(Math.ceil(frame / longestBucketSeconds), Math.floor(bitsPerSecond / 8));
  const longest = Math.min(most32, rate * longestBucketSeconds);
  const asked =
    burstBits === undefined
      ? Math.min(Math.floor(rate * burstSeconds), mostDefaultBurst)
      : Math.floor(burstBits / 8);
  const burst = Math.max(frame, Math.min(asked, longest));
  const waiting = Math.floor(rate * latencySeconds) + burst;
  return { rate, burst, limit: withinMemory(waiting) };
}

/** A bucket in which each packet costs the same. */
function packetBucket(packets: number, mtu: number): TokenBucket {
  const most = Math.floor(most32 / packetCost);
  const burst = Math.min(Math.max(1, Math.floor(packets * burstSeconds)), most);
  const waiting = (Math.ceil(packets * latencySeconds) + burst) * (mtu + frameHeader);
  return {
    rate: packets * packetCost,
    burst: burst * packetCost,
    limit: withinMemory(waiting),
    leastCost: packetCost,
  };
}

/** What may wait in a queue without a bucket of its own: a thousand frames. Pure. */
export const plainQueueLimit = (mtu: number): number => withinMemory(1000 * (mtu + frameHeader));

const withinMemory = (waiting: number): number =>
  Math.min(Math.max(waiting, leastWaiting), mostWaiting);

/**
 * The bucket that a link has, with the bytes that it lets leave at once as precisely as the kernel
 * reports them. Pure.
 */
export const foundBucket = ({
  rate,
  limit,
  leastCost,
  fullNanoseconds,
}: ObservedBucket): TokenBucket => ({
  rate,
  limit,
  burst: Math.round((fullNanoseconds / 1e9) * rate),
  ...(leastCost === 0 ? {} : { leastCost }),
});

/** Whether a link has that bucket; the kernel's arithmetic leaves its size a little off. Pure. */
export function hasBucket(found: ObservedBucket | undefined, wanted: TokenBucket): boolean {
  if (found?.rate !== wanted.rate || found.limit !== wanted.limit) return false;
  if (found.leastCost !== (wanted.leastCost ?? 0)) return false;
  const lasts = (wanted.burst / wanted.rate) * 1e9;
  return Math.abs(found.fullNanoseconds - lasts) <= lasts / 50 + 128;
}
