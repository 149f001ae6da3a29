import { pollEvent, sys } from "./sys.ts";

/** A descriptor the loop looks after. */
export interface Watch {
  /** Events waited for; 0 waits only for a hang-up, which is always reported. */
  events(wanted: number): void;
  /** Ends the watch; the descriptor stays the caller's to close. */
  stop(): void;
}

interface Entry {
  readonly fd: number;
  wanted: number;
  readonly handle: (events: number) => void;
  stopped: boolean;
}

interface Timer {
  readonly due: number;
  readonly run: () => void;
}

/**
 * The agent's one loop: `tick` waits for descriptors and timers and calls their handlers. The
 * engine calls it over and over, and runs promise jobs in between (native/engine.c). A handler that
 * throws is reported; the loop goes on.
 */
export class Loop {
  #entries: Entry[] = [];
  #timers: Timer[] = [];
  #set = new Int32Array(32);
  readonly #report: (thrown: unknown) => void;

  constructor(report: (thrown: unknown) => void) {
    this.#report = report;
  }

  watch(fd: number, wanted: number, handle: (events: number) => void): Watch {
    const entry: Entry = { fd, wanted, handle, stopped: false };
    this.#entries.push(entry);
    return {
      events: (events) => {
        entry.wanted = events;
      },
      stop: () => {
        entry.stopped = true;
        this.#entries = this.#entries.filter((other) => other !== entry);
      },
    };
  }

  /** Runs once after `ms` milliseconds; the answer cancels it. */
  after(ms: number, run: () => void): () => void {
    const timer: Timer = { due: sys.monotonic() + ms, run };
    this.#timers.push(timer);
    return () => {
      this.#timers = this.#timers.filter((other) => other !== timer);
    };
  }

  sleep(ms: number): Promise<void> {
    return new Promise((resolve) => {
      this.after(ms, resolve);
    });
  }

  tick(): void {
    const entries = this.#entries;
    const { length } = entries;
    const set = this.#fill(entries);
    if (sys.poll(set, this.#timeout(), length) > 0) {
      // Handlers may add and stop watches: only the watches of this round are visited. The set is
      // not refilled meanwhile.
      for (let i = 0; i < length; i++) {
        const entry = entries[i] as Entry;
        const happened = (set[2 * i + 1] as number) >>> 16;
        if (happened !== 0 && !entry.stopped) this.#guard(entry.handle, happened);
      }
    }
    if (this.#timers.length > 0) this.#runDue();
  }

  #runDue(): void {
    const now = sys.monotonic();
    const due = this.#timers.filter((timer) => timer.due <= now);
    if (due.length === 0) return;
    this.#timers = this.#timers.filter((timer) => timer.due > now);
    for (const timer of due) this.#guard(timer.run, 0);
  }

  #guard(run: (events: number) => void, events: number): void {
    try {
      run(events);
    } catch (thrown) {
      this.#report(thrown);
    }
  }

  #fill(entries: readonly Entry[]): Int32Array {
    if (2 * entries.length > this.#set.length) this.#set = new Int32Array(4 * entries.length);
    const set = this.#set;
    for (let i = 0; i < entries.length; i++) {
      const { fd, wanted } = entries[i] as Entry;
      set[2 * i] = fd;
      set[2 * i + 1] = wanted;
    }
    return set;
  }

  #timeout(): number {
    if (this.#timers.length === 0) return -1;
    const first = Math.min(...this.#timers.map((timer) => timer.due));
    return Math.max(0, Math.ceil(first - sys.monotonic()));
  }
}

/** Whether poll reported data, or of an end that reading will show. */
export const readable = (events: number): boolean =>
  (events & (pollEvent.in | pollEvent.hangUp | pollEvent.error)) !== 0;
