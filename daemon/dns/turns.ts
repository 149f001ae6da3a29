import type { Clock } from "../../core/clock.ts";
import { TokenBucket } from "../../core/token-bucket.ts";
import type { Way } from "./ask-upstream.ts";
import { type Asker, FairShares } from "./fair-shares.ts";

/** Questions of one asker, each way. */
const rate = { perSecond: 500, burst: 1000 } as const;
/**
 * Forwarded questions at a time, each with a socket. Questions over TCP have slots of their own:
 * the handshake proves the sender's address, and forged datagrams cannot take their slots.
 */
const places = {
  udp: { asker: 64, network: 256, all: 512 },
  tcp: { asker: 32, network: 128, all: 256 },
} as const;
/** TCP connections at a time. */
const connections = { asker: 8, network: 128, all: 256 } as const;
/** Above this number, askers whose bucket is full again are forgotten. */
const remembered = 4096;

/**
 * Limits questions: no pod keeps the resolver busy for the others, and no network for other
 * networks.
 */
export class Turns {
  readonly #clock: Clock;
  readonly #buckets = new Map<string, TokenBucket>();
  readonly #places = { udp: new FairShares(places.udp), tcp: new FairShares(places.tcp) };
  readonly #connections = new FairShares(connections);

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Whether one question more may be asked now. */
  ask(asker: Asker, way: Way): boolean {
    return this.#bucket(`${way} ${asker.network} ${asker.holder}`).take();
  }

  /**
   * Takes a slot for a forwarded question, until it is disposed or given to another; undefined when
   * none is free.
   */
  forward(asker: Asker, way: Way, displaced: () => void): Disposable | undefined {
    return this.#places[way].take(asker, displaced);
  }

  /** Takes a place for a connection in the same manner. */
  connection(asker: Asker, displaced: () => void): Disposable | undefined {
    return this.#connections.take(asker, displaced);
  }

  #bucket(key: string): TokenBucket {
    const known = this.#buckets.get(key);
    if (known !== undefined) return known;
    if (this.#buckets.size >= remembered) this.#forget();
    const bucket = new TokenBucket(rate, this.#clock);
    this.#buckets.set(key, bucket);
    return bucket;
  }

  /** An asker with a full bucket may ask as much as a new one. */
  #forget(): void {
    for (const [key, bucket] of this.#buckets) if (bucket.full) this.#buckets.delete(key);
  }
}
