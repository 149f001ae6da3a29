import { createContextKey } from "@connectrpc/connect";
import { toConnectError } from "../../api/codes.ts";
import type { Role } from "../../api/roles.ts";
import type { Clock } from "../../core/clock.ts";
import { PodnetError } from "../../core/errors.ts";
import { TokenBucket } from "../../core/token-bucket.ts";
import { type LoopTurns, LoopUser } from "../../linux/loop-turns.ts";
import type { AccessConfig } from "../config/access.ts";
import type { ApiLimits } from "../config/limits.ts";
import { roleOf } from "./access.ts";
import type { Peer } from "./peer.ts";

/** Callers without anything under way that are remembered for the rate they called at. */
const remembered = 1024;

/** A create that is counted until disposed, and whose it is. */
export interface Admission extends Disposable {
  readonly owner: object;
}

/**
 * One user or certificate, over all of its connections: what it has under way, and how fast it may
 * go on.
 */
export class Caller {
  readonly peer: Peer;
  readonly role: Role | undefined;
  readonly #account: Account;
  readonly #limits: ApiLimits;
  readonly #turns: LoopTurns;

  constructor(peer: Peer, role: Role | undefined, account: Account, parts: CallersParts) {
    this.peer = peer;
    this.role = role;
    this.#account = account;
    this.#limits = parts.limits;
    this.#turns = parts.turns;
  }

  /** Takes a place for a connection until disposed. Throws `LIMIT_REACHED`. */
  connection(): Disposable {
    spend(this.#account.newConnections, "connections_per_s", "new connections");
    const { connectionsPerCaller } = this.#limits;
    if (this.#account.connections >= connectionsPerCaller)
      throw tooMany("connections_per_caller", connectionsPerCaller, "connections");
    return this.#take("connections");
  }

  /** Takes a place for a request until disposed. Throws `LIMIT_REACHED`. */
  request(): Disposable {
    spend(this.#account.newRequests, "requests_per_s", "requests");
    const { requestsPerCaller } = this.#limits;
    if (this.#account.requests >= requestsPerCaller)
      throw tooMany("requests_per_caller", requestsPerCaller, "requests and streams under way");
    return this.#take("requests");
  }

  /** Counts a create or start, for as long as it goes on, even when its caller has gone. */
  create(): Admission {
    const { createsPerCaller } = this.#limits;
    if (this.#account.creates >= createsPerCaller)
      throw tooMany("creates_per_caller", createsPerCaller, "creates and starts under way");
    return { owner: this.#account, ...this.#take("creates") };
  }

  /** Counts a capture of traffic. */
  capture(): Disposable {
    const { capturesPerCaller } = this.#limits;
    if (this.#account.captures >= capturesPerCaller)
      throw tooMany("captures_per_caller", capturesPerCaller, "captures under way");
    return this.#take("captures");
  }

  /** Resolves when it is the turn of one of its messages; rejects when `over` resolves before. */
  turn(over: Promise<void>): Promise<void> {
    return this.#turns.enter(this.#account.loop, { over, gone: callerGone });
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
  readonly loop: LoopUser;
  readonly newConnections: TokenBucket;
  readonly newRequests: TokenBucket;
}

export interface CallersParts {
  readonly access: AccessConfig;
  readonly limits: ApiLimits;
  readonly clock: Clock;
  readonly turns: LoopTurns;
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
      account = newAccount(this.#parts);
      this.#accounts.set(key, account);
    }
    return new Caller(peer, roleOf(peer, this.#parts.access), account, this.#parts);
  }

  /**
   * Lets go of accounts a newcomer would be given just the same: nothing under way, and full of
   * tokens.
   */
  #forget(): void {
    for (const [key, account] of this.#accounts) {
      const { connections, requests, creates, captures, newConnections, newRequests } = account;
      const idle = connections + requests + creates + captures === 0;
      if (idle && newConnections.full && newRequests.full) this.#accounts.delete(key);
    }
  }
}

function newAccount({ limits, clock }: CallersParts): Account {
  const bucket = (perSecond: number): TokenBucket =>
    new TokenBucket({ perSecond, burst: 2 * perSecond }, clock);
  return {
    connections: 0,
    requests: 0,
    creates: 0,
    captures: 0,
    loop: new LoopUser("callers", "api"),
    newConnections: bucket(limits.connectionsPerS),
    newRequests: bucket(limits.requestsPerS),
  };
}

/**
 * Takes a token for one more of `what`. Throws `LIMIT_REACHED` when there is none, with the time
 * until there is.
 */
function spend(bucket: TokenBucket, key: string, what: string): void {
  if (bucket.take()) return;
  const { waitMs } = bucket;
  throw new PodnetError("LIMIT_REACHED", `More than ${bucket.perSecond} ${what} a second`, {
    hint: `Try again in ${waitMs} ms, or raise limits.${key}`,
    details: { limit: `limits.${key}`, retry_after_ms: waitMs },
  });
}

const callerGone = (): Error =>
  toConnectError(
    new PodnetError("CANCELLED", "The caller has gone before its request had its turn"),
  );

/**
 * Certificates of one authority with the same names are one caller; a user is one in all of its
 * groups.
 */
function accountKey(peer: Peer): string {
  if (peer.kind === "unix") return `uid:${peer.uid}`;
  return peer.kind === "tls" ? `cert:${JSON.stringify(peer.names)}` : "unknown";
}

const tooMany = (key: string, limit: number, what: string): PodnetError =>
  new PodnetError("LIMIT_REACHED", `You have ${limit} ${what}, the most there may be`, {
    hint: `End some, or raise limits.${key}`,
    details: { limit: `limits.${key}` },
  });
