import type { Loop } from "./loop.ts";

/**
 * How long the rest of a frame may take to begin to come, milliseconds. Hosts send frames in one
 * go, or in chunks that wait for NEXT (runv); podnetd asks again after 10 s without an answer.
 */
export const frameDeadlineMs = 5000;

/**
 * Forgets half a frame whose rest does not come. A host may end in the middle of one, and the next
 * host connect before the agent sees the hang-up: its commands would be taken for the rest, for
 * ever.
 */
export class FrameDeadline {
  readonly #loop: Loop;
  readonly #forget: () => void;
  #cancel: (() => void) | undefined;

  constructor(loop: Loop, forget: () => void) {
    this.#loop = loop;
    this.#forget = forget;
  }

  /**
   * Starts the time anew where a frame is `pending`, and stops it otherwise: after each read, and
   * when reading pauses.
   */
  arm(pending: boolean): void {
    if (!pending && this.#cancel === undefined) return;
    this.#cancel?.();
    this.#cancel = pending
      ? this.#loop.after(frameDeadlineMs, () => {
          this.#cancel = undefined;
          this.#forget();
        })
      : undefined;
  }
}
