import type { Clock } from "../../core/clock.ts";

/** Questions of one pod a second in the long run; twice as many at once. */
const perSecond = 500;
/** Questions that are handed on at a time, each with a socket: of one pod, and of all. */
const most = { pod: 64, all: 512 } as const;
/** TCP connections at a time. */
const mostConnections = { pod: 8, all: 256 } as const;
/** Pods without anything under way that are remembered for the rate they asked at. */
const remembered = 2048;

interface Account {
  forwards: number;
  connections: number;
  tokens: number;
  filledAt: number;
}

type Counted = "forwards" | "connections";

/** Whose turn it is: no pod keeps the resolver busy for the others, or podnetd for everybody. */
export class Turns {
  readonly #clock: Clock;
  readonly #accounts = new Map<string, Account>();
  readonly #all: Record<Counted, number> = { forwards: 0, connections: 0 };

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Whether the pod may ask one question more now. */
  ask(pod: string): boolean {
    const account = this.#account(pod);
    const now = this.#clock.monotonic();
    const earned = ((now - account.filledAt) * perSecond) / 1000;
    account.tokens = Math.min(2 * perSecond, account.tokens + earned);
    account.filledAt = now;
    if (account.tokens < 1) return false;
    account.tokens--;
    return true;
  }

  /** Takes a place for a question that is handed on until disposed; undefined when none is free. */
  forward(pod: string): Disposable | undefined {
    return this.#take(pod, "forwards", most);
  }

  /** The same for a connection. */
  connection(pod: string): Disposable | undefined {
    return this.#take(pod, "connections", mostConnections);
  }

  #take(
    pod: string,
    what: Counted,
    limit: { readonly pod: number; readonly all: number },
  ): Disposable | undefined {
    const account = this.#account(pod);
    if (account[what] >= limit.pod || this.#all[what] >= limit.all) return undefined;
    account[what]++;
    this.#all[what]++;
    let held = true;
    return {
      [Symbol.dispose]: () => {
        if (!held) return;
        held = false;
        account[what]--;
        this.#all[what]--;
      },
    };
  }

  #account(pod: string): Account {
    const known = this.#accounts.get(pod);
    if (known !== undefined) return known;
    if (this.#accounts.size >= remembered) this.#forget();
    const filledAt = this.#clock.monotonic();
    const account = { forwards: 0, connections: 0, tokens: 2 * perSecond, filledAt };
    this.#accounts.set(pod, account);
    return account;
  }

  /** Whoever has asked nothing for two seconds may ask as much as a newcomer. */
  #forget(): void {
    const now = this.#clock.monotonic();
    for (const [pod, { forwards, connections, filledAt }] of this.#accounts)
      if (forwards + connections === 0 && now - filledAt >= 2000) this.#accounts.delete(pod);
  }
}
