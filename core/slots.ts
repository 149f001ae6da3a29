import { abortable } from "./aborting.ts";

interface Waiting {
  readonly owner: unknown;
  readonly begin: () => void;
}

/**
 * Bounds how much work goes on at a time; other work waits. A slot that is free goes to the owner
 * that holds the fewest, and of its work to that which has waited longest. So who asks for much
 * waits for itself.
 */
export class Slots {
  readonly #most: number;
  readonly #waiting: Waiting[] = [];
  /** How many slots each owner holds. */
  readonly #held = new Map<unknown, number>();
  #busy = 0;

  constructor(most: number) {
    this.#most = most;
  }

  /** How much work waits. */
  get waiting(): number {
    return this.#waiting.length;
  }

  /**
   * Waits for a slot, which is held until disposed. `what` names the work. Throws the signal's
   * reason, `CANCELLED` or `DEADLINE_EXCEEDED` when the signal aborts before.
   */
  async take(signal: AbortSignal, what: string, owner?: unknown): Promise<Disposable> {
    if (this.#busy < this.#most) return this.#hold(owner);
    const begun = Promise.withResolvers<Disposable>();
    const waiting: Waiting = { owner, begin: () => begun.resolve(this.#hold(owner)) };
    this.#waiting.push(waiting);
    try {
      return await abortable(begun.promise, signal, what);
    } catch (thrown) {
      const at = this.#waiting.indexOf(waiting);
      if (at >= 0) this.#waiting.splice(at, 1);
      // Its slot came at the same moment.
      else void begun.promise.then((slot) => slot[Symbol.dispose]());
      throw thrown;
    }
  }

  #hold(owner: unknown): Disposable {
    this.#busy++;
    this.#held.set(owner, this.#heldBy(owner) + 1);
    let isHeld = true;
    return {
      [Symbol.dispose]: () => {
        if (isHeld) this.#giveBack(owner);
        isHeld = false;
      },
    };
  }

  #giveBack(owner: unknown): void {
    this.#busy--;
    const left = this.#heldBy(owner) - 1;
    if (left > 0) this.#held.set(owner, left);
    else this.#held.delete(owner);
    let next: Waiting | undefined;
    for (const each of this.#waiting)
      if (next === undefined || this.#heldBy(each.owner) < this.#heldBy(next.owner)) next = each;
    if (next === undefined) return;
    this.#waiting.splice(this.#waiting.indexOf(next), 1);
    next.begin();
  }

  #heldBy(owner: unknown): number {
    return this.#held.get(owner) ?? 0;
  }
}
