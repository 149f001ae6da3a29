import { createContextKey } from "@connectrpc/connect";
import type { Role } from "../../api/roles.ts";
import type { Clock } from "../../core/clock.ts";
import { PodnetError } from "../../core/errors.ts";
import type { AccessConfig } from "../config/access.ts";
import type { ApiLimits } from "../config/limits.ts";
import { roleOf } from "./access.ts";
import type { Peer } from "./peer.ts";

/** Callers without anything under way that are remembered for the rate they called at. */
const remembered = 1024;

/** One user or certificate, over all of its connections: what it has under way, and how fast it may go on. */
export class Caller {
  readonly peer: Peer;
  readonly role: Role | undefined;
  readonly #account: Account;
  readonly #limits: ApiLimits;
  readonly #clock: Clock;

  constructor(peer: Peer, role: Role | undefined, account: Account, parts: CallersParts) {
    this.peer = peer;
    this.role = role;
    this.#account = account;
    this.#limits = parts.limits;
    this.#clock = parts.clock;
  }

  /** Whether it may open a connection more; counted until disposed. */
  connection(): Disposable | undefined {
    return this.#account.connections >= this.#limits.connectionsPerCaller
      ? undefined
      : this.#take("connections");
  }

  /** Takes a place for a request until disposed. Throws `LIMIT_REACHED`. */
  request(): Disposable {
    this.#spend();
    const { requestsPerCaller } = this.#limits;
    if (this.#account.requests >= requestsPerCaller)
      throw tooMany("requests_per_caller", requestsPerCaller, "requests and streams");
    return this.#take("requests");
  }

  /** The same for a create or start, for as long as it goes on, even when its caller has gone. */
  create(): Disposable {
    const { createsPerCaller } = this.#limits;
    if (this.#account.creates >= createsPerCaller)
      throw tooMany("creates_per_caller", createsPerCaller, "creates and starts");
    return this.#take("creates");
  }

  /** The same for a capture of traffic. */
  capture(): Disposable {
    const { capturesPerCaller } = this.#limits;
    if (this.#account.captures >= capturesPerCaller)
      throw tooMany("captures_per_caller", capturesPerCaller, "captures");
    return this.#take("captures");
  }

  /** A token bucket: `requests_per_s` flow in, twice as many fit. */
  #spend(): void {
    const account = this.#account;
    const { requestsPerS } = this.#limits;
    refill(account, requestsPerS, this.#clock.monotonic());
    if (account.tokens >= 1) {
      account.tokens--;
      return;
    }
    const retryMs = Math.max(1, Math.ceil(((1 - account.tokens) * 1000) / requestsPerS));
    throw new PodnetError("LIMIT_REACHED", `More than ${requestsPerS} requests a second`, {
      hint: `Try again in ${retryMs} ms, or raise limits.requests_per_s`,
      details: { limit: "limits.requests_per_s", retry_after_ms: retryMs },
    });
  }

  #take(what: "connections" | "requests" | "creates" | "captures"): Disposable {
    const account = this.#account;
    account[what]++;
    let held = true;
    return {
      [Symbol.dispose]: () => {
        if (held) account[what]--;
        held = false;
      },
    };
  }
}

export const callerKey = createContextKey<Caller | undefined>(undefined, {
  description: "the caller's account",
});

interface Account {
  connections: number;
  requests: number;
  creates: number;
  captures: number;
  tokens: number;
  /** Of the monotonic clock, milliseconds. */
  filledAt: number;
}

export interface CallersParts {
  readonly access: AccessConfig;
  readonly limits: ApiLimits;
  readonly clock: Clock;
}

/** Everybody who calls, each with one account however many connections it has. */
export class Callers {
  readonly #parts: CallersParts;
  readonly #accounts = new Map<string, Account>();

  constructor(parts: CallersParts) {
    this.#parts = parts;
  }

  caller(peer: Peer): Caller {
    const key = accountKey(peer);
    let account = this.#accounts.get(key);
    if (account === undefined) {
      if (this.#accounts.size >= remembered) this.#forget();
      const tokens = 2 * this.#parts.limits.requestsPerS;
      const filledAt = this.#parts.clock.monotonic();
      account = { connections: 0, requests: 0, creates: 0, captures: 0, tokens, filledAt };
      this.#accounts.set(key, account);
    }
    return new Caller(peer, roleOf(peer, this.#parts.access), account, this.#parts);
  }

  /** Lets go of accounts a newcomer would be given just the same: nothing under way, and full of tokens. */
  #forget(): void {
    const { limits, clock } = this.#parts;
    const now = clock.monotonic();
    for (const [key, account] of this.#accounts) {
      refill(account, limits.requestsPerS, now);
      const { connections, requests, creates, captures, tokens } = account;
      const idle = connections + requests + creates + captures === 0;
      if (idle && tokens >= 2 * limits.requestsPerS) this.#accounts.delete(key);
    }
  }
}

function refill(account: Account, perS: number, now: number): void {
  const earned = ((now - account.filledAt) * perS) / 1000;
  account.tokens = Math.min(2 * perS, account.tokens + earned);
  account.filledAt = now;
}

/** Certificates of one authority with the same names are one caller; a user is one in all of its groups. */
function accountKey(peer: Peer): string {
  if (peer.kind === "unix") return `uid:${peer.uid}`;
  return peer.kind === "tls" ? `cert:${JSON.stringify(peer.names)}` : "unknown";
}

const tooMany = (key: string, limit: number, what: string): PodnetError =>
  new PodnetError("LIMIT_REACHED", `You have ${limit} ${what} under way, the most there may be`, {
    hint: `End some, or raise limits.${key}`,
    details: { limit: `limits.${key}` },
  });
