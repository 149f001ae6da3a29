import { abortError } from "../../core/aborting.ts";
import { guarded } from "../../core/guard.ts";

/** Something that is to happen after so much of a guest's time. */
interface Timer extends Disposable {
  /** Stops the host's clock for it. */
  hold(): void;
  run(): void;
}

/**
 * A guest's time: it is paused while the guest's machine is paused. It measures the guest's
 * deadlines, so that a machine that cannot run is not late.
 */
export class GuestTime {
  readonly #timers = new Set<Timer>();
  #stoodMs = 0;
  #stoppedAt: number | undefined;
  #going = Promise.withResolvers<void>();

  constructor() {
    this.#going.resolve();
  }

  /** Whether it is paused. */
  get stands(): boolean {
    return this.#stoppedAt !== undefined;
  }

  /** Milliseconds since some moment; constant while it is paused. */
  now(): number {
    return (this.#stoppedAt ?? performance.now()) - this.#stoodMs;
  }

  /** The machine is paused. A second call says nothing new. */
  stop(): void {
    if (this.stands) return;
    this.#stoppedAt = performance.now();
    this.#going = Promise.withResolvers();
    for (const timer of this.#timers) timer.hold();
  }

  /** It runs again. */
  go(): void {
    if (this.#stoppedAt === undefined) return;
    this.#stoodMs += performance.now() - this.#stoppedAt;
    this.#stoppedAt = undefined;
    for (const timer of this.#timers) timer.run();
    this.#going.resolve();
  }

  /**
   * Resolves when it runs, which may be now. Throws `CANCELLED`, `DEADLINE_EXCEEDED` when `signal`
   * aborts before.
   */
  async going(signal: AbortSignal): Promise<void> {
    const { promise, reject } = Promise.withResolvers<never>();
    const onAbort = (): void => reject(abortError(signal, "Waiting for the machine to be resumed"));
    if (signal.aborted) onAbort();
    signal.addEventListener("abort", onAbort, { once: true });
    try {
      await Promise.race([promise, this.#going.promise]);
    } finally {
      signal.removeEventListener("abort", onAbort);
    }
  }

  /** Runs `body` when so much of the guest's time has passed, unless disposed before. */
  after(ms: number, body: () => void): Disposable {
    const dueAt = this.now() + ms;
    let waiting: NodeJS.Timeout | undefined;
    const timer: Timer = {
      hold: () => clearTimeout(waiting),
      run: () => {
        waiting = setTimeout(
          guarded("guest", () => {
            this.#timers.delete(timer);
            body();
          }),
          Math.max(0, dueAt - this.now()),
        );
      },
      [Symbol.dispose]: () => {
        clearTimeout(waiting);
        this.#timers.delete(timer);
      },
    };
    this.#timers.add(timer);
    if (!this.stands) timer.run();
    return timer;
  }

  /**
   * A signal that aborts with `signal`, and as `AbortSignal.timeout` does once so much of the
   * guest's time has passed.
   */
  limited(ms: number, signal: AbortSignal): { readonly signal: AbortSignal } & Disposable {
    const limit = new AbortController();
    const timer = this.after(ms, () =>
      limit.abort(new DOMException("The guest took too long", "TimeoutError")),
    );
    return {
      signal: AbortSignal.any([signal, limit.signal]),
      [Symbol.dispose]: () => timer[Symbol.dispose](),
    };
  }
}
