import { type Clock, systemClock } from "../core/clock.ts";
import { guard, type Place } from "../core/guard.ts";

/**
 * So long may work go on in one turn of the event loop, milliseconds: work that begins at once, and
 * after it work that has waited. A step of a pod takes one to four. A call takes some four turns
 * from its arrival to its answer, so that whoever asks little waits four times as long as `waited`.
 */
const turnMs = { atOnce: 4, waited: 2 } as const;
/** The most pieces of work that have waited and go on in one turn, however short they are. */
const mostATurn = 16;

/** Kinds of work that share the event loop: when all of them wait, each gets the same time. */
export type LoopShare = "callers" | "pods" | "guests";

/** One that works in the event loop: a caller of the API, the steps of pods, a guest's socket. */
export class LoopUser {
  readonly share: LoopShare;
  /** Where a defect of its work is reported. */
  readonly place: Place;
  /** Its work that waits, the oldest first. */
  readonly waiting = new Set<() => void>();
  /** Milliseconds, on a scale that all users of one share have in common. */
  used = 0;

  constructor(share: LoopShare, place: Place) {
    this.share = share;
    this.place = place;
  }
}

/** A caller that may leave before its turn. */
export interface Leaving {
  /** Resolves when it leaves. */
  readonly over: Promise<void>;
  /** What `enter` rejects with then. */
  gone(): Error;
}

/** The users of one kind that wait. */
class Share {
  readonly users = new Set<LoopUser>();
  used = 0;
  /** What the user of the last turn had used before that turn. */
  reached = 0;
}

/**
 * Divides the turns of the event loop, so that no work keeps all other work waiting for long. Work
 * is divided into pieces by those who have it. A piece begins at once while a turn has been short
 * and nothing waits. Other pieces wait. In each turn some of them go on, until they have used their
 * time of it. Then the loop looks at connections and timers again.
 *
 * The next piece is that of the share which has used the least time, and there of the user which
 * has used the least. So who asks much waits for itself. Who comes anew starts where the others
 * are: what it has not used is not saved up, and what it used alone is not held against it
 * (start-time fair queueing).
 */
export class LoopTurns {
  readonly #clock: Clock;
  readonly #shares: Readonly<Record<LoopShare, Share>> = {
    callers: new Share(),
    pods: new Share(),
    guests: new Share(),
  };
  /** What the share of the last piece had used before that piece. */
  #reached = 0;
  /** How many pieces wait. */
  #waiting = 0;
  #number = 0;
  /** When the first piece of this turn began at once. */
  #began: number | undefined;
  /** Calls that are to come for pieces that wait, and the one behind them. */
  #calls = 0;
  #last: NodeJS.Immediate | undefined;
  /** When the first piece that had waited went on in this turn. */
  #wentOn: number | undefined;
  #piece: { readonly user: LoopUser; readonly at: number } | undefined;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Which turn this is. */
  get number(): number {
    return this.#number;
  }

  /** Whether a piece of work may begin at once. Otherwise it has to wait. */
  begin(): boolean {
    if (this.#waiting > 0) return false;
    const now = this.#clock.monotonic();
    if (this.#began === undefined) {
      this.#began = now;
      setImmediate(() => this.#endTurn());
    }
    return now - this.#began < turnMs.atOnce;
  }

  /**
   * Calls `work` when it is the user's turn. Answers a function that takes it back, and says
   * whether it was in time.
   */
  next(user: LoopUser, work: () => void): () => boolean {
    const share = this.#shares[user.share];
    if (share.users.size === 0) share.used = Math.max(share.used, this.#reached);
    if (user.waiting.size === 0) user.used = Math.max(user.used, share.reached);
    share.users.add(user);
    user.waiting.add(work);
    this.#waiting++;
    // While pieces go on, the last call makes those for the next turn.
    if (this.#wentOn === undefined) this.#callOnce();
    return () => this.#remove(user, work);
  }

  /** Resolves when it is the user's turn; rejects when the caller leaves before. */
  enter(user: LoopUser, leaving?: Leaving): Promise<void> {
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const takeBack = this.next(user, resolve);
    void leaving?.over.then(() => {
      if (takeBack()) reject(leaving.gone());
    });
    return promise;
  }

  #remove(user: LoopUser, work: () => void): boolean {
    if (!user.waiting.delete(work)) return false;
    this.#waiting--;
    if (user.waiting.size === 0) this.#shares[user.share].users.delete(user);
    return true;
  }

  #endTurn(): void {
    this.#number++;
    this.#began = undefined;
  }

  /**
   * Has one more piece go on in the next turn. Node runs all that a piece has set going by promises
   * before the next of these calls, and looks at connections and timers after the last of them.
   */
  #callOnce(): void {
    if (this.#calls >= mostATurn) return;
    this.#calls++;
    setImmediate(() => this.#runPiece());
    clearImmediate(this.#last);
    this.#last = setImmediate(() => {
      this.#charge();
      this.#calls = 0;
      this.#wentOn = undefined;
      for (let n = Math.min(this.#waiting, mostATurn); n > 0; n--) this.#callOnce();
    });
  }

  #runPiece(): void {
    this.#charge();
    const at = this.#clock.monotonic();
    if (this.#wentOn !== undefined && at - this.#wentOn >= turnMs.waited) return;
    this.#wentOn ??= at;
    const share = leastUsed(Object.values(this.#shares).filter(({ users }) => users.size > 0));
    const user = leastUsed(share?.users ?? []);
    const [work] = user?.waiting ?? [];
    if (share === undefined || user === undefined || work === undefined) return;
    this.#remove(user, work);
    this.#reached = Math.max(this.#reached, share.used);
    share.reached = Math.max(share.reached, user.used);
    this.#piece = { user, at };
    guard(user.place, work);
  }

  /** Charges the piece before to its user. */
  #charge(): void {
    if (this.#piece === undefined) return;
    const { user, at } = this.#piece;
    const tookMs = this.#clock.monotonic() - at;
    user.used += tookMs;
    this.#shares[user.share].used += tookMs;
    this.#piece = undefined;
  }
}

function leastUsed<T extends { readonly used: number }>(all: Iterable<T>): T | undefined {
  let least: T | undefined;
  for (const each of all) if (least === undefined || each.used < least.used) least = each;
  return least;
}

/** The turns of this process: there is one event loop. */
export const loopTurns = new LoopTurns(systemClock);
