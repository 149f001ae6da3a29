/** Packets of all interfaces of a pod, as the pod sees them, since its machine began. */
export interface PodPackets {
  readonly sent: number;
  readonly received: number;
}

/**
 * Packets a second that a pod may receive and be idle: broadcasts of other pods reach it, too. What
 * is for the pod makes it answer, and one packet that it sends is enough.
 */
const noisePerS = 10;

/**
 * When a pod was used last: by traffic, programs of exec, or callers that are attached. Of one
 * machine: another one begins anew.
 */
export class Activity {
  #callers = 0;
  /** Callers so far. */
  #came = 0;
  #last: { readonly atMs: number; readonly came: number; readonly packets: PodPackets } | undefined;
  #usedMs = 0;

  /** A caller uses the pod until the answer is disposed of. */
  begin(): Disposable {
    this.#callers++;
    this.#came++;
    let isOver = false;
    return {
      [Symbol.dispose]: () => {
        if (!isOver) this.#callers--;
        isOver = true;
      },
    };
  }

  /**
   * Looks at the pod at a moment, in milliseconds that never go backwards, and returns for how long
   * it has been idle. The first look begins.
   */
  look(atMs: number, packets: PodPackets): number {
    const last = this.#last;
    this.#last = { atMs, came: this.#came, packets };
    const isUsed =
      last === undefined ||
      this.#callers > 0 ||
      this.#came > last.came ||
      packets.sent !== last.packets.sent ||
      packets.received - last.packets.received > (noisePerS * (atMs - last.atMs)) / 1000;
    if (isUsed) this.#usedMs = atMs;
    return atMs - this.#usedMs;
  }

  /** How long the pod was idle by the last look; 0 if it was used since; undefined without one. */
  get idleMs(): number | undefined {
    if (this.#last === undefined) return undefined;
    const isUsed = this.#callers > 0 || this.#came > this.#last.came;
    return isUsed ? 0 : this.#last.atMs - this.#usedMs;
  }

  /** The pod is not looked at now, such as while it is paused: the next look begins anew. */
  rest(): void {
    this.#last = undefined;
  }
}
