import type { Clock } from "../../core/clock.ts";
import type { Way } from "./ask-upstream.ts";
import { type Asker, FairShares } from "./fair-shares.ts";

/** Questions of one asker a second in the long run, each way; twice as many at once. */
const perSecond = 500;
/**
 * Questions that are handed on at a time, each with a socket. Those that came by TCP have places of
 * their own: their sender's address is proven by the handshake, and no forged datagram takes their
 * place.
 */
const places = {
  udp: { asker: 64, network: 256, all: 512 },
  tcp: { asker: 32, network: 128, all: 256 },
} as const;
/** TCP connections at a time. */
const connections = { asker: 8, network: 128, all: 256 } as const;
/** Askers without a question for two seconds are forgotten when there are more than so many. */
const remembered = 4096;

interface Bucket {
  tokens: number;
  filledAt: number;
}

/**
 * Whose turn it is: no pod keeps the resolver busy for the others, and no network for other
 * networks.
 */
export class Turns {
  readonly #clock: Clock;
  readonly #buckets = new Map<string, Bucket>();
  readonly #places = { udp: new FairShares(places.udp), tcp: new FairShares(places.tcp) };
  readonly #connections = new FairShares(connections);

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Whether one question more may be asked now. */
  ask(asker: Asker, way: Way): boolean {
    const bucket = this.#bucket(`${way} ${asker.network} ${asker.holder}`);
    const now = this.#clock.monotonic();
    const earned = ((now - bucket.filledAt) * perSecond) / 1000;
    bucket.tokens = Math.min(2 * perSecond, bucket.tokens + earned);
    bucket.filledAt = now;
    if (bucket.tokens < 1) return false;
    bucket.tokens--;
    return true;
  }

  /**
   * Takes a place for a question that is handed on, until disposed or given to another; undefined
   * when none is free.
   */
  forward(asker: Asker, way: Way, displaced: () => void): Disposable | undefined {
    return this.#places[way].take(asker, displaced);
  }

  /** Takes a place for a connection in the same manner. */
  connection(asker: Asker, displaced: () => void): Disposable | undefined {
    return this.#connections.take(asker, displaced);
  }

  #bucket(key: string): Bucket {
    const known = this.#buckets.get(key);
    if (known !== undefined) return known;
    if (this.#buckets.size >= remembered) this.#forget();
    const bucket = { tokens: 2 * perSecond, filledAt: this.#clock.monotonic() };
    this.#buckets.set(key, bucket);
    return bucket;
  }

  /** Whoever has asked nothing for two seconds may ask as much as a newcomer. */
  #forget(): void {
    const now = this.#clock.monotonic();
    for (const [key, { filledAt }] of this.#buckets)
      if (now - filledAt >= 2000) this.#buckets.delete(key);
  }
}
