import type { Socket } from "node:net";
import { systemClock } from "../../core/clock.ts";
import { guard, guarded, type Place } from "../../core/guard.ts";
import { type Rate, TokenBucket } from "../../core/token-bucket.ts";
import { type LoopTurns, LoopUser, loopTurns } from "../loop-turns.ts";

/** Units of work in one piece, about 4 µs each. */
const mostAPiece = 256;
/** Bytes that count as one unit of work. */
const bytesAUnit = 512;
/** How long tokens are gathered before reading goes on, milliseconds: no timer for each of them. */
const gatherMs = 10;
/** A sender is too fast once its bucket has not been half full for so long, milliseconds. */
const defaultTooFastMs = 5000;

/** The outcome of handling the beginning of some bytes. */
export interface Worked {
  /** Bytes taken; the rest is offered again later. At least one. */
  readonly bytes: number;
  /** Units of work: items, mostly. */
  readonly units: number;
  /** Taken from the sender's bucket. */
  readonly tokens: number;
}

export interface PaceOptions {
  /**
   * Who sends: an unexpected error of `work` is reported as a defect there, and `drop` ends the
   * socket.
   */
  readonly source: Place;
  readonly drop: () => void;
  /** Works off the beginning of `bytes`, at most `most` items. */
  readonly work: (bytes: Uint8Array, most: number) => Worked;
  /**
   * How many tokens the sender may use; undefined bounds only what a turn of the event loop may
   * take.
   */
  readonly rate?: Rate;
  /** The sender has been slowed down for five seconds (true), or no longer is (false). */
  readonly tooFast?: (is: boolean) => void;
  /** Instead of the five seconds. */
  readonly tooFastMs?: number;
  readonly turns?: LoopTurns;
  /** Its bytes are those that `take` is given, of memory that is used again: see `readInto`. */
  readonly given?: boolean;
}

/**
 * Reads a socket whose sender is not trusted, no faster than its budget allows: in pieces that
 * share the event loop with other work, and in each second a bounded number of tokens. Excess data
 * stays in the socket, which blocks its sender.
 */
export class PacedSocket {
  readonly #socket: Socket;
  readonly #options: PaceOptions;
  readonly #turns: LoopTurns;
  readonly #user: LoopUser;
  readonly #bucket: TokenBucket | undefined;
  /** Works off bytes that the socket has read, as far as its budget allows, and keeps the rest. */
  readonly take: (bytes: Uint8Array) => void;
  #held = false;
  #waits = false;
  #turn = -1;
  #left = 0;
  /** Bytes that were given and have not been worked off. */
  #rest: Uint8Array | undefined;
  #timer: NodeJS.Timeout | undefined;
  /**
   * There while the bucket has not been half full since it was empty: who looks at it, and whether
   * that was reported.
   */
  #slow: { readonly watcher: NodeJS.Timeout; reported: boolean } | undefined;

  /** Begins to read at once. Errors and the end of the socket are the caller's to hear. */
  constructor(socket: Socket, options: PaceOptions) {
    this.#socket = socket;
    this.#options = options;
    this.#turns = options.turns ?? loopTurns;
    this.#user = new LoopUser("guests", options.source);
    const { rate } = options;
    this.#bucket = rate === undefined ? undefined : new TokenBucket(rate, systemClock);
    const { source, drop } = options;
    const take = (bytes: Uint8Array): void => this.#take(bytes);
    const closed = (): void => {
      clearTimeout(this.#timer);
      clearInterval(this.#slow?.watcher);
    };
    this.take = guarded(source, take, drop);
    if (options.given !== true) socket.on("data", this.take);
    socket.on("close", guarded(source, closed));
  }

  /** Whether nothing is read now: the caller holds it, or the sender's budget is used up. */
  get paused(): boolean {
    return this.#held || this.#waits;
  }

  /** Stops reading until `resume`. */
  pause(): void {
    this.#held = true;
    this.#socket.pause();
  }

  resume(): void {
    this.#held = false;
    if (!this.#waits) this.#read();
  }

  #take(bytes: Uint8Array): void {
    let at = 0;
    while (at < bytes.length && !this.#held && !this.#socket.destroyed) {
      const room = this.#room();
      if (room <= 0) break;
      // As many bytes as there are: a frame that is cut has to be put together again.
      const worked = this.#options.work(at === 0 ? bytes : bytes.subarray(at), room);
      at += worked.bytes;
      this.#left -= worked.units + worked.bytes / bytesAUnit;
      this.#bucket?.charge(worked.tokens);
    }
    if (at >= bytes.length || this.#socket.destroyed) return;
    // Before the socket's end, which is not read before it goes on.
    this.#socket.pause();
    if (this.#options.given === true) this.#rest = new Uint8Array(bytes.subarray(at));
    else this.#socket.unshift(bytes.subarray(at));
    if (!this.#held) this.#wait();
  }

  /** Goes on with what has been read, then with what comes. */
  #read(): void {
    if (this.#rest === undefined) this.#socket.resume();
    else process.nextTick(this.#takeRest);
  }

  readonly #takeRest = (): void => {
    const rest = this.#rest;
    if (rest === undefined || this.paused || this.#socket.destroyed) return;
    this.#rest = undefined;
    this.take(rest);
    if (this.#rest === undefined && !this.paused) this.#socket.resume();
  };

  /** Units that may be worked off now. */
  #room(): number {
    if (this.#bucket !== undefined && this.#bucket.tokens <= 0) return 0;
    if (this.#turn !== this.#turns.number) {
      this.#turn = this.#turns.number;
      if (this.#turns.begin()) this.#addPiece();
      else this.#left = Math.min(0, this.#left);
    }
    return Math.ceil(this.#left);
  }

  /** One more piece; what the last one had too much is taken from it. */
  #addPiece(): void {
    this.#left = mostAPiece + Math.min(0, this.#left);
  }

  /** Reads on when it is its turn, or when the sender has tokens again. */
  #wait(): void {
    this.#waits = true;
    const { rate } = this.#options;
    const missing = -(this.#bucket?.tokens ?? 1);
    if (rate === undefined || missing < 0) {
      this.#turns.next(this.#user, () => {
        this.#turn = this.#turns.number;
        this.#addPiece();
        this.#goOn();
      });
      return;
    }
    this.#watch();
    this.#timer = setTimeout(
      guarded(this.#options.source, () => this.#goOn()),
      (missing * 1000) / rate.perSecond + gatherMs,
    );
  }

  #goOn(): void {
    this.#waits = false;
    if (!this.#held && !this.#socket.destroyed) this.#read();
  }

  /** Looks after a sender that has used up its bucket, until half of it is there again. */
  #watch(): void {
    if (this.#slow !== undefined || this.#socket.destroyed) return;
    const { rate, tooFastMs = defaultTooFastMs } = this.#options;
    const half = (rate?.burst ?? 0) / 2;
    const since = performance.now();
    const watcher = setInterval(
      guarded(this.#options.source, () => {
        const now = performance.now();
        const slow = this.#slow;
        if (slow === undefined) return;
        // While something waits to be read it is slow, however late this process is with it.
        if (!this.#waits && (this.#bucket?.tokens ?? half) >= half) {
          clearInterval(watcher);
          this.#slow = undefined;
          if (slow.reported) this.#report(false);
        } else if (!slow.reported && now - since >= tooFastMs) {
          slow.reported = true;
          this.#report(true);
        }
      }),
      tooFastMs / 5,
    ).unref();
    this.#slow = { watcher, reported: false };
  }

  #report(is: boolean): void {
    const { source, drop, tooFast } = this.#options;
    guard(source, () => tooFast?.(is), drop);
  }
}

/** Begins to read a socket, as `PacedSocket` does. */
export const paceReading = (socket: Socket, options: PaceOptions): PacedSocket =>
  new PacedSocket(socket, options);
