import { familyOf, type Ip } from "../../../core/address.ts";
import type { EchoAnswer, EchoOptions } from "../../../linux/echo-socket.ts";
import type { RefusedDatagramOptions } from "../../../linux/refused-datagram.ts";

export type AskEcho = (address: Ip, options: EchoOptions) => Promise<EchoAnswer>;
export type AskRefusal = (address: Ip, options: RefusedDatagramOptions) => Promise<boolean>;

/** How much of what an overlay promises its pods gets to a peer. */
export type PathProbe =
  | { readonly kind: "whole" }
  /** The longest packet that got there, where one of the overlay's MTU did not. */
  | { readonly kind: "less"; readonly carries: number }
  /** The peer does not answer at all. */
  | { readonly kind: "unknown" };

/** A packet may be lost for other reasons than its length. */
const tries = 2;
/** What every host takes (RFC 791, RFC 8200). */
const always = { 4: 576, 6: 1280 } as const;

/**
 * Whether packets as long as the overlay's MTU reach a peer through the overlay, in one piece: an
 * underlay that carries less than its links say loses them without a word. `address` is one of
 * `probeTargets`. Where they do not, what does is found by halving.
 */
export async function probePath(
  ask: AskEcho,
  address: Ip,
  { mtu, timeoutMs }: { readonly mtu: number; readonly timeoutMs: number },
): Promise<PathProbe> {
  const passes = async (bytes: number): Promise<boolean> => {
    for (let i = 0; i < tries; i++) {
      const answer = await ask(address, { bytes, timeoutMs });
      if (answer.kind === "answered") return true;
      if (answer.kind !== "silent") return false;
    }
    return false;
  };
  const least = Math.min(always[familyOf(address)], mtu);
  if (!(await passes(least))) return { kind: "unknown" };
  if (await passes(mtu)) return { kind: "whole" };
  let carries = least;
  let lost = mtu;
  while (lost - carries > 1) {
    const half = Math.floor((carries + lost) / 2);
    if (await passes(half)) carries = half;
    else lost = half;
  }
  return { kind: "less", carries };
}

/** What becomes of checksums that are left to the network card, on the way to a peer. */
export type ChecksumProbe =
  | "sound"
  /** Datagrams without one arrive, and those with one do not. */
  | "damaged"
  /** The peer refuses none, whatever they have: a rule of its may say so. */
  | "unknown";

/** As many as a host refuses before it takes a rest (icmp_ratelimit), between both kinds. */
const datagrams = 3;
/** Where nobody listens who has been told to: dynamic ports. */
const ports = { first: 49_152, count: 16_384 } as const;

/**
 * Whether datagrams whose checksum is left to the card arrive at a peer through the tunnel: some
 * cards and drivers damage those that are wrapped, and everything but ping then hangs. `address` is
 * one of `probeTargets`, of IPv4: without a checksum there are no datagrams of IPv6 to compare
 * with. Throws `SYSCALL_FAILED`.
 */
export async function probeChecksum(
  ask: AskRefusal,
  address: Ip,
  { timeoutMs, signal }: { readonly timeoutMs: number; readonly signal: AbortSignal },
): Promise<ChecksumProbe> {
  const arrives = async (checksum: boolean): Promise<boolean> => {
    for (let i = 0; i < datagrams && !signal.aborted; i++) {
      const port = ports.first + Math.floor(Math.random() * ports.count);
      if (await ask(address, { port, checksum, timeoutMs, signal })) return true;
    }
    return false;
  };
  if (await arrives(true)) return "sound";
  return (await arrives(false)) && !signal.aborted ? "damaged" : "unknown";
}
