import { familyOf, type Ip } from "../../../core/address.ts";
import type { EchoAnswer, EchoOptions } from "../../../linux/sockets/echo-socket.ts";
import type { RefusedDatagramOptions } from "../../../linux/sockets/refused-datagram.ts";

export type AskEcho = (address: Ip, options: EchoOptions) => Promise<EchoAnswer>;
export type AskRefusal = (address: Ip, options: RefusedDatagramOptions) => Promise<boolean>;

/** Which packet lengths, up to the overlay's MTU, reach a peer. */
export type PathProbe =
  | { readonly kind: "whole" }
  /** The longest packet that got there, where one of the overlay's MTU did not. */
  | { readonly kind: "less"; readonly carries: number }
  /** The peer does not answer at all. */
  | { readonly kind: "unknown" };

/** A packet may be lost for other reasons than its length. */
const tries = 2;
/** The packet length that every host accepts (RFC 791, RFC 8200). */
const always = { 4: 576, 6: 1280 } as const;

/**
 * Probes whether packets as long as the overlay's MTU reach a peer through the overlay in one
 * piece: an underlay that carries less than its links report drops them silently. `address` is one
 * of `probeTargets`. If they do not arrive, bisection finds the length that does.
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

/** The fate of checksums that are left to the network card, on the way to a peer. */
export type ChecksumProbe =
  | "sound"
  /** Datagrams without a checksum arrive, and those with one do not. */
  | "damaged"
  /** The peer refuses no datagram at all: one of its rules may drop them. */
  | "unknown";

/**
 * The number of refusals, of both kinds together, before a host limits their rate (icmp_ratelimit).
 */
const datagrams = 3;
/** Ports on which usually no program listens: dynamic ports. */
const ports = { first: 49_152, count: 16_384 } as const;

/**
 * Probes whether datagrams whose checksum is left to the card arrive at a peer through the tunnel:
 * some cards and drivers damage encapsulated datagrams, and then everything except ping hangs.
 * `address` is one of `probeTargets`, of IPv4: IPv6 has no datagrams without a checksum to compare
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
