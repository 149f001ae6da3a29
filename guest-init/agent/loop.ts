import { pollEvent, sys } from "./sys.ts";

/** A descriptor the loop looks after. */
export interface Watch {
  /** Events waited for; 0 waits only for a hang-up, which is always reported. */
  events(wanted: number): void;
  /** Ends the watch; the descriptor stays the caller's to close. */
  stop(): void;
}

/** A watch, and its place in the set that poll(2) reads. */
class Entry implements Watch {
  readonly fd: number;
  readonly handle: (events: number) => void;
  readonly #loop: Loop;
  wanted: number;
  /** -1 once it is stopped. */
  place: number;

  constructor(loop: Loop, place: number, fd: number, wanted: number, handle: Entry["handle"]) {
    this.#loop = loop;
    this.place = place;
    this.fd = fd;
    this.wanted = wanted;
    this.handle = handle;
  }

  events(wanted: number): void {
    if (this.wanted === wanted) return;
    this.wanted = wanted;
    if (this.place >= 0) this.#loop.put(this);
  }

  stop(): void {
    if (this.place >= 0) this.#loop.drop(this);
  }
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
  readonly #entries: Entry[] = [];
  #timers: Timer[] = [];
  /** Pairs of a descriptor and its events, in the order of the entries: made once, then kept. */
  #set = new Int32Array(32);
  /** Pairs of a place and what happened there. */
  #found = new Int32Array(32);
  readonly #report: (thrown: unknown) => void;
  /** A port that waits for commands, whose steps need no handler; -1 when there is none. */
  servesItself: () => number = () => -1;

  constructor(report: (thrown: unknown) => void) {
    this.#report = report;
  }

  watch(fd: number, wanted: number, handle: (events: number) => void): Watch {
    const entry = new Entry(this, this.#entries.length, fd, wanted, handle);
    this.#entries.push(entry);
    if (2 * this.#entries.length > this.#set.length) this.#enlarge();
    this.put(entry);
    return entry;
  }

  /** For `Entry`: its part of the set. */
  put({ place, fd, wanted }: Entry): void {
    this.#set[2 * place] = fd;
    this.#set[2 * place + 1] = wanted;
  }

  /** For `Entry`: the last one takes its place. */
  drop(entry: Entry): void {
    const last = this.#entries.pop() as Entry;
    if (last !== entry) {
      last.place = entry.place;
      this.#entries[last.place] = last;
      this.put(last);
    }
    entry.place = -1;
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
    const found = this.#found;
    const count = sys.poll(
      this.#set,
      this.#timeout(),
      this.#entries.length,
      found,
      this.servesItself() + 1,
    );
    if (count === 1) this.#handle(this.#entries[found[0] as number] as Entry, found[1] as number);
    else if (count > 1) this.#handleAll(count);
    if (this.#timers.length > 0) this.#runDue();
  }

  /** Handlers may add and stop watches: those of this round are visited, wherever they are then. */
  #handleAll(count: number): void {
    const found = this.#found.slice(0, 2 * count);
    const entries = this.#entries.slice();
    for (let i = 0; i < 2 * count; i += 2)
      this.#handle(entries[found[i] as number] as Entry, found[i + 1] as number);
  }

  #handle(entry: Entry, events: number): void {
    if (entry.place >= 0) this.#guard(entry.handle, events);
  }

  #enlarge(): void {
    const set = new Int32Array(2 * this.#set.length);
    set.set(this.#set);
    this.#set = set;
    this.#found = new Int32Array(set.length);
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

  #timeout(): number {
    if (this.#timers.length === 0) return -1;
    const first = Math.min(...this.#timers.map((timer) => timer.due));
    return Math.max(0, Math.ceil(first - sys.monotonic()));
  }
}

/** Whether poll reported data, or of an end that reading will show. */
export const readable = (events: number): boolean =>
  (events & (pollEvent.in | pollEvent.hangUp | pollEvent.error)) !== 0;
