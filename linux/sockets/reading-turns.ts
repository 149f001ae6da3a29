import { guarded } from "../../core/guard.ts";
/** Units of work for all readers together in one turn of the event loop, about 4 µs each. */
const unitsATurn = 512;
/** The most for one reader, and the least, however many readers there are. */
const mostOfOne = 256;
const leastOfOne = 8;

/**
 * Divides each turn of the event loop among everybody who reads what guests send, so that all of
 * them together leave most of it to others. A turn ends with the loop's check phase.
 */
export class ReadingTurns {
  #number = 0;
  #readers = 0;
  #share = mostOfOne;
  #waiting: (() => void)[] = [];
  #endsSoon = false;

  /** Which turn this is: it changes when a new share may be taken. */
  get number(): number {
    return this.#number;
  }

  /** Takes one reader's share of this turn, in units. A reader takes it once a turn. */
  take(): number {
    this.#readers++;
    this.#endSoon();
    return this.#share;
  }

  /** Calls `run` at the beginning of the next turn. */
  next(run: () => void): void {
    this.#waiting.push(run);
    this.#endSoon();
  }

  #endSoon(): void {
    if (this.#endsSoon) return;
    this.#endsSoon = true;
    setImmediate(guarded("guest", () => this.#end()));
  }

  #end(): void {
    const share = Math.floor(unitsATurn / Math.max(1, this.#readers));
    this.#share = Math.min(mostOfOne, Math.max(leastOfOne, share));
    this.#number++;
    this.#readers = 0;
    this.#endsSoon = false;
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const run of waiting) run();
  }
}

/** The turns of this process: there is one event loop. */
export const readingTurns = new ReadingTurns();
