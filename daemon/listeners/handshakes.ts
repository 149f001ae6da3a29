import { guarded } from "../../core/guard.ts";
import type { Socket } from "node:net";
import type { Clock } from "../../core/clock.ts";
import { ipToBytes, isIp, parseIp } from "../../core/address.ts";
import { TokenBucket } from "../../core/token-bucket.ts";

interface HandshakeLimits {
  /** Unfinished handshakes at a time, of all sources. */
  readonly handshakes: number;
  /** New connections a second of one source in the long run; twice as many at once. */
  readonly connectionsPerS: number;
  /**
   * Longest a handshake may take from its connection on, milliseconds, however often something is
   * sent.
   */
  readonly ms: number;
}

export interface HandshakesOptions {
  readonly limits: HandshakeLimits;
  readonly clock: Clock;
  /**
   * Called once for each connection that ends without a finished handshake, with a reason from a
   * small set.
   */
  refused(reason: string): void;
}

interface Unfinished {
  readonly socket: Socket;
  readonly source: Source;
  readonly timer: NodeJS.Timeout;
}

/** An IPv4 address, or the 64 bits of an IPv6 address that are one subscriber's. */
interface Source {
  readonly unfinished: Set<Unfinished>;
  readonly bucket: TokenBucket;
}

/** Sources remembered for their rate; beyond that many at a time new ones share one. */
const remembered = 4096;
/** Between two looks for sources that can be forgotten, milliseconds. */
const sweepMs = 1000;

/**
 * Connections whose TLS handshake is not finished, and whose caller is therefore not known. They
 * have a pool apart from the connections of callers. One source may use a quarter of the pool. A
 * new connection always gets a place: when its source has used its quarter, the oldest of that
 * source ends; when the pool is full, the oldest of the source that has the most ends. So a source
 * that holds connections open keeps out itself alone, and a caller that finishes its handshake at
 * once gets in.
 */
export class Handshakes {
  readonly #options: HandshakesOptions;
  readonly #sources = new Map<string, Source>();
  /** By the ends of the connection; the oldest first. */
  readonly #unfinished = new Map<string, Unfinished>();
  #sweptAt = -Infinity;

  constructor(options: HandshakesOptions) {
    this.#options = options;
  }

  /**
   * Counts a new connection until its handshake is finished; false when it was refused and is gone.
   */
  begin(socket: Socket): boolean {
    const { refused, limits } = this.#options;
    const ends = endsOf(socket);
    const source = this.#source(sourceOf(socket.remoteAddress ?? ""));
    // A client that has gone already has no address.
    const reason =
      ends === undefined ? "tls" : source.bucket.take() ? undefined : "connections_per_s";
    if (ends === undefined || reason !== undefined) {
      refused(reason ?? "tls");
      socket.destroy();
      return false;
    }
    this.#makeRoom(source);
    const end = (why: string): void => this.#end(ends, entry, why);
    const timer = setTimeout(
      guarded("api", () => end("slow_handshake")),
      limits.ms,
    ).unref();
    const entry: Unfinished = { socket, source, timer };
    // Its client has given up an earlier one, and taken its port again.
    const earlier = this.#unfinished.get(ends);
    if (earlier !== undefined) this.#end(ends, earlier, "tls");
    source.unfinished.add(entry);
    this.#unfinished.set(ends, entry);
    socket.once("close", () => end("tls"));
    return true;
  }

  /**
   * Takes a connection whose handshake is finished out of the pool; false when its client has gone
   * meanwhile.
   */
  finish(socket: Socket): boolean {
    const ends = endsOf(socket);
    const entry = ends === undefined ? undefined : this.#unfinished.get(ends);
    if (ends === undefined || entry === undefined) return false;
    this.#forget(ends, entry);
    return true;
  }

  /** Ends all that are unfinished. */
  close(): void {
    for (const [ends, entry] of this.#unfinished) {
      this.#forget(ends, entry);
      entry.socket.destroy();
    }
  }

  #makeRoom(source: Source): void {
    const { handshakes } = this.#options.limits;
    if (source.unfinished.size >= Math.ceil(handshakes / 4))
      this.#endOldest("handshakes_per_source", source);
    else if (this.#unfinished.size >= handshakes) this.#endOldest("handshakes", this.#largest());
  }

  #largest(): Source | undefined {
    let largest: Source | undefined;
    for (const { source } of this.#unfinished.values())
      if (source.unfinished.size > (largest?.unfinished.size ?? 0)) largest = source;
    return largest;
  }

  #endOldest(reason: string, source: Source | undefined): void {
    for (const [ends, entry] of this.#unfinished)
      if (entry.source === source) return this.#end(ends, entry, reason);
  }

  /** Ends a handshake and counts it, unless it is finished or has ended already. */
  #end(ends: string, entry: Unfinished, reason: string): void {
    if (this.#unfinished.get(ends) !== entry) return;
    this.#forget(ends, entry);
    this.#options.refused(reason);
    entry.socket.destroy();
  }

  #forget(ends: string, entry: Unfinished): void {
    clearTimeout(entry.timer);
    entry.source.unfinished.delete(entry);
    this.#unfinished.delete(ends);
  }

  #source(key: string): Source {
    this.#sweep();
    const name = this.#sources.size < remembered || this.#sources.has(key) ? key : "others";
    let source = this.#sources.get(name);
    if (source === undefined) {
      const { connectionsPerS } = this.#options.limits;
      const rate = { perSecond: connectionsPerS, burst: 2 * connectionsPerS };
      source = { unfinished: new Set(), bucket: new TokenBucket(rate, this.#options.clock) };
      this.#sources.set(name, source);
    }
    return source;
  }

  /** Forgets sources that a new one would not differ from. */
  #sweep(): void {
    const now = this.#options.clock.monotonic();
    if (now - this.#sweptAt < sweepMs) return;
    this.#sweptAt = now;
    for (const [key, { unfinished, bucket }] of this.#sources)
      if (unfinished.size === 0 && bucket.full) this.#sources.delete(key);
  }
}

/**
 * Identifies an open connection: TLS passes out another object for a connection than the one it was
 * given.
 */
function endsOf({ remoteAddress, remotePort, localAddress }: Socket): string | undefined {
  return remoteAddress === undefined ? undefined : `${remoteAddress} ${remotePort} ${localAddress}`;
}

/**
 * The client behind an address: each IPv4 address is one, mapped or not, and so are all IPv6
 * addresses of one /64.
 */
function sourceOf(address: string): string {
  const [ip = ""] = address.split("%");
  if (!isIp(ip)) return "unknown";
  const bytes = ipToBytes(parseIp(ip));
  if (bytes.length === 4) return ip;
  const mapped = bytes.subarray(0, 12).every((byte, i) => byte === (i < 10 ? 0 : 0xff));
  return mapped ? bytes.subarray(12).join(".") : Buffer.from(bytes.subarray(0, 8)).toString("hex");
}
