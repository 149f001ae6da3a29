import { syncBuiltinESMExports } from "node:module";
import timersPromises from "node:timers/promises";

/** Whose a timer is: those of the program under test end with it, the world's go on. */
type Owner = "program" | "world";

interface Event {
  readonly id: number;
  readonly dueMs: number;
  readonly owner: Owner;
  readonly body: () => void;
}

const turn = timersPromises.setImmediate;
/** 2025-01-01T00:00:00Z. */
const startMs = 1_735_689_600_000;

/**
 * Time that passes only from one event to the next. Events are done one at a time, in the order in
 * which they are due; after each, everything that promises set off is done before the next.
 */
export class VirtualTime {
  #events: Event[] = [];
  #nextId = 1;
  #nowMs = 0;
  #jumpMs = 0;

  /** Milliseconds since the beginning; never goes back. */
  get monotonicMs(): number {
    return this.#nowMs;
  }

  /** What a clock on the wall shows, which an administrator may set. */
  get wallMs(): number {
    return Math.floor(startMs + this.#nowMs + this.#jumpMs);
  }

  jump(ms: number): void {
    this.#jumpMs += ms;
  }

  after(ms: number, body: () => void, owner: Owner = "world"): number {
    const id = this.#nextId++;
    const dueMs = this.#nowMs + Math.max(0, ms);
    const at = this.#events.findLastIndex((event) => event.dueMs <= dueMs) + 1;
    this.#events.splice(at, 0, { id, dueMs, owner, body });
    return id;
  }

  cancel(id: number): void {
    const at = this.#events.findIndex((event) => event.id === id);
    if (at >= 0) this.#events.splice(at, 1);
  }

  /** Ends all timers of the program: it is gone. */
  dropProgram(): void {
    this.#events = this.#events.filter(({ owner }) => owner === "world");
  }

  /** Resolves after a time, on the world's account. */
  passed(ms: number): Promise<void> {
    return new Promise((resolve) => {
      this.after(ms, resolve);
    });
  }

  /** Does events until `done` says so. Throws when nothing is left that could make it so. */
  async run(done: () => boolean, limit = 200_000): Promise<number> {
    await turn();
    for (let steps = 0; !done(); steps++) {
      const next = this.#events.shift();
      if (next === undefined) throw new Error("Everything waits for everything: no event is left");
      if (steps >= limit) throw new Error(`No end after ${limit} events`);
      this.#nowMs = next.dueMs;
      next.body();
      await turn();
    }
    return 0;
  }

  /** Replaces everything by which a program of this process could learn or await the time. */
  takeOver(): void {
    const set = (body: (...args: unknown[]) => void, ms = 0, ...args: unknown[]): Timer =>
      new Timer(this, ms, () => body(...args), false);
    const every = (body: (...args: unknown[]) => void, ms = 0, ...args: unknown[]): Timer =>
      new Timer(this, ms, () => body(...args), true);
    const clear = (timer: unknown): void => {
      if (timer instanceof Timer) timer.close();
    };
    const delay = (
      ms = 0,
      value?: unknown,
      options: { signal?: AbortSignal } = {},
    ): Promise<unknown> =>
      new Promise((resolve, reject) => {
        const { signal } = options;
        const gone = (): void =>
          reject(new DOMException("The operation was aborted", "AbortError"));
        if (signal?.aborted === true) return gone();
        const timer = set(() => {
          signal?.removeEventListener("abort", stop);
          resolve(value);
        }, ms);
        const stop = (): void => {
          timer.close();
          gone();
        };
        signal?.addEventListener("abort", stop, { once: true });
      });
    const timeout = (ms: number): AbortSignal => {
      const controller = new AbortController();
      set(() => controller.abort(new DOMException("It took too long", "TimeoutError")), ms);
      return controller.signal;
    };
    Object.assign(globalThis, {
      setTimeout: set,
      clearTimeout: clear,
      setInterval: every,
      clearInterval: clear,
      setImmediate: (body: () => void) => set(body, 0),
      clearImmediate: clear,
    });
    AbortSignal.timeout = timeout;
    Date.now = () => this.wallMs;
    performance.now = () => this.#nowMs;
    Object.assign(timersPromises, { setTimeout: delay, setImmediate: () => delay(0) });
    syncBuiltinESMExports();
  }
}

/** What setTimeout answers here; the program may ask of it what it asks of Node's. */
class Timer implements Disposable {
  readonly #time: VirtualTime;
  #id: number;

  constructor(time: VirtualTime, ms: number, body: () => void, again: boolean) {
    this.#time = time;
    const fire = (): void => {
      if (again) this.#id = time.after(Math.max(1, ms), fire, "program");
      body();
    };
    this.#id = time.after(ms, fire, "program");
  }

  close(): void {
    this.#time.cancel(this.#id);
  }

  ref(): this {
    return this;
  }

  unref(): this {
    return this;
  }

  [Symbol.dispose](): void {
    this.close();
  }
}
