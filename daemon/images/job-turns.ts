import { abortable } from "../../core/aborting.ts";
import { PodnetError } from "../../core/errors.ts";

/** Jobs at a time, and those that may wait. */
const slots = 2;
const mostWaiting = 32;

/** The turns of pulls and imports: some at a time, in the order in which they came. */
export class JobTurns {
  readonly #waiting: (() => void)[] = [];
  #busy = 0;

  /** Waits for a turn, which the caller gives up. Throws `LIMIT_REACHED`, and when aborted. */
  async take(signal: AbortSignal): Promise<void> {
    if (this.#busy < slots) {
      this.#busy += 1;
      return;
    }
    if (this.#waiting.length >= mostWaiting)
      throw new PodnetError("LIMIT_REACHED", "Too many pulls and imports wait already", {
        hint: "Try again later",
      });
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#waiting.push(resolve);
    try {
      await abortable(promise, signal, "The work on the image");
    } catch (thrown) {
      const at = this.#waiting.indexOf(resolve);
      // Its turn may have come meanwhile.
      if (at < 0) this.giveUp();
      else this.#waiting.splice(at, 1);
      throw thrown;
    }
  }

  giveUp(): void {
    const next = this.#waiting.shift();
    if (next === undefined) this.#busy -= 1;
    else next();
  }
}
