import type { Clock } from "../../core/clock.ts";

/**
 * So long may steps run in one turn of the event loop before others wait, milliseconds. A step
 * takes one to four.
 */
const longEnoughMs = 4;

/**
 * Divides the steps of pods over turns of the event loop. What the kernel, machines and guests of a
 * hundred pods answer arrives together. If each pod went on with its next step at once, calls and
 * connections would wait for all of them.
 */
export class StepTurns {
  /** When the first step of this turn began; undefined when none did. */
  #began: number | undefined;
  readonly #waiting: (() => void)[] = [];

  /** Resolves when a step may begin: at once, unless this turn has been long or others wait. */
  async enter(clock: Clock): Promise<void> {
    const now = clock.monotonic();
    if (this.#began === undefined) {
      this.#began = now;
      this.#endTurn(clock);
    }
    if (this.#waiting.length === 0 && now - this.#began < longEnoughMs) return;
    await new Promise<void>((resolve) => void this.#waiting.push(resolve));
  }

  /** Lets one that waits begin in each turn from the next on, before what arrives in it. */
  #endTurn(clock: Clock): void {
    setImmediate(() => {
      const next = this.#waiting.shift();
      this.#began = next === undefined ? undefined : clock.monotonic();
      if (next === undefined) return;
      this.#endTurn(clock);
      next();
    });
  }
}

/** The turns of this process: there is one event loop. */
export const stepTurns = new StepTurns();
