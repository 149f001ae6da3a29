import type { TokenBucket } from "../../linux/rtnetlink/qdisc.ts";

/** The most that passes a port, in either direction; an absent direction has no limit. */
export interface PortRates {
  readonly toGuest?: Rate;
  readonly fromGuest?: Rate;
}

/** The limits of one direction: at least one of bits and packets. */
export interface Rate {
  /** Of whole frames, with their Ethernet headers. */
  readonly bitsPerSecond?: number;
  /**
   * Bits that may be sent at once after a pause; reduced to the link's need and the kernel's limit.
   * Absent: what the rate brings in 50 ms.
   */
  readonly burstBits?: number;
  /** A segment that is handed over at once (TSO) counts as one packet. */
  readonly packetsPerSecond?: number;
}

/** A rate as people write it: `100mbit, 10000 packets a second`. Pure. */
function rateText({ bitsPerSecond, burstBits, packetsPerSecond }: Rate): string {
  return [
    bitsPerSecond === undefined ? [] : [bitsText(bitsPerSecond)],
    bitsPerSecond === undefined || burstBits === undefined
      ? []
      : [`burst ${Math.floor(burstBits / 8)} bytes`],
    packetsPerSecond === undefined ? [] : [`${packetsPerSecond} packets a second`],
  ]
    .flat()
    .join(", ");
}

/** Both directions, as the guest sees them: `in 100mbit; out 50mbit`. Pure. */
export const ratesText = ({ toGuest, fromGuest }: PortRates): string =>
  [
    toGuest === undefined ? [] : [`in ${rateText(toGuest)}`],
    fromGuest === undefined ? [] : [`out ${rateText(fromGuest)}`],
  ]
    .flat()
    .join("; ");

const units = [
  ["tbit", 1e12],
  ["gbit", 1e9],
  ["mbit", 1e6],
  ["kbit", 1e3],
] as const;

/** Bits a second in the largest unit that leaves a whole number, as tc writes them. */
function bitsText(bits: number): string {
  const [unit, size] = units.find(([, each]) => bits % each === 0 && bits >= each) ?? ["bit", 1];
  return `${bits / size}${unit}`;
}

/** A bucket's rate and burst, for people. Pure. */
export const bucketText = ({ rate, burst, leastCost }: TokenBucket): string =>
  leastCost === undefined
    ? `${rate} bytes a second, ${burst} at once`
    : `${rate / leastCost} packets a second, ${burst / leastCost} at once`;
