import { contains, type Ip, isIp, parseIp } from "../../core/address.ts";
import type { NetworkName } from "../../core/names.ts";
import type { HolderId } from "../store/holder.ts";
import type { Way } from "./ask-upstream.ts";
import type { Asker } from "./fair-shares.ts";
import type { Forwarder } from "./forward.ts";
import { type NamePolicies, NamePolicy, noteResolved } from "./name-policy.ts";
import { type Query, rcodeOf, readQuery, tcpInstead, truncated } from "./query.ts";
import { replyOf, servFail, wrongQuery } from "./reply.ts";
import type { StaleAnswers } from "./stale-answers.ts";
import type { Turns } from "./turns.ts";
import { lookUp, type Zone } from "./zone.ts";

/** Outcomes of questions since podnetd started. */
export interface ResolverCounts {
  /** Asked by pods. */
  queries: number;
  /** Handed on to other servers. */
  forwarded: number;
  /** Dropped, or answered only with an error: from unknown senders, too many, or invalid. */
  refused: number;
  /** Handed on and not answered in time. */
  timeouts: number;
  /** Answered with a server's earlier answer, as no server answered now. */
  stale: number;
}

/**
 * A guest waits for a server so long before it gets a stale answer, milliseconds (RFC 8767 section
 * 5).
 */
const staleAfterMs = 1800;

export interface ResolverParts {
  /** The network whose pods it answers. */
  readonly network: NetworkName;
  /** Names that a pod may resolve. */
  zoneOf(asker: HolderId): Zone;
  readonly turns: Turns;
  readonly forwarder: Pick<Forwarder, "forward">;
  readonly counts: ResolverCounts;
  /** The holder of an address on the network; undefined when no pod has it. */
  askerAt(ip: Ip): HolderId | undefined;
  upstreams(): readonly Ip[];
  /** Answers for when no server answers; without it there are none. */
  readonly stale?: StaleAnswers | undefined;
  /** Which names askers may resolve; without it all of them. */
  readonly policies?: NamePolicies | undefined;
  /** An asker has used up its share of places. */
  readonly crowded?: (asker: Asker) => void;
}

/** Answers only the pods of one network, with names of all the networks they are on. */
export class Resolver {
  readonly #parts: ResolverParts;

  constructor(parts: ResolverParts) {
    this.#parts = parts;
  }

  /**
   * Takes a place for a connection; undefined for those who are not served, and when there are too
   * many. `displaced` is called when the place goes to another asker: the connection has to end.
   */
  connection(from: string | undefined, displaced: () => void): Disposable | undefined {
    const asker = this.#asker(from);
    const place = asker === undefined ? undefined : this.#parts.turns.connection(asker, displaced);
    if (place === undefined) this.#parts.counts.refused++;
    return place;
  }

  /** Counts a question that is not looked at. */
  refuse(): void {
    this.#parts.counts.refused++;
  }

  /** The answer to a question; undefined for none. */
  async answer(
    bytes: Uint8Array,
    from: string | undefined,
    way: Way,
  ): Promise<Uint8Array | undefined> {
    const { counts, turns } = this.#parts;
    const asker = this.#asker(from);
    if (asker === undefined || !turns.ask(asker, way)) {
      counts.refused++;
      // Another pod may have sent the question with this one's address. TCP proves the sender.
      return asker !== undefined && way === "udp" ? tcpInstead(bytes) : undefined;
    }
    const read = readQuery(bytes);
    if (read.kind !== "query") {
      counts.refused++;
      return read.kind === "wrong" ? wrongQuery(bytes, read.rcode) : undefined;
    }
    counts.queries++;
    const answer = await this.#answerOf(read.query, asker, way);
    const most = way === "tcp" ? Infinity : Math.min(read.query.udpBytes, maxUdpBytes);
    return answer.length > most ? truncated(answer, read.query) : answer;
  }

  async #answerOf(query: Query, asker: Asker, way: Way): Promise<Uint8Array> {
    const zone = this.#parts.zoneOf(asker.holder);
    const found = lookUp(query, zone);
    if (found.kind !== "elsewhere") return replyOf(query, found);
    const policy = NamePolicy.of(this.#parts.policies, asker.holder, (ip) =>
      zone.pools().some((pool) => contains(pool, ip)),
    );
    const refusal = policy?.refusal(query);
    if (refusal !== undefined) this.#parts.counts.refused++;
    if (refusal !== undefined) return refusal;
    const answer = await this.#elsewhere(query, asker, way);
    noteResolved(this.#parts.policies, asker.holder, query, answer);
    return policy === undefined || rcodeOf(answer) !== 0 ? answer : policy.filtered(query, answer);
  }

  /** What another server says, now or earlier. */
  async #elsewhere(query: Query, asker: Asker, way: Way): Promise<Uint8Array> {
    const { counts, stale } = this.#parts;
    const forwarded = this.#forward(query, asker, way);
    const last = stale?.find(asker, query);
    const answer = await (last === undefined ? forwarded : within(forwarded, staleAfterMs));
    if (typeof answer === "object") return answer;
    if (last !== undefined) {
      counts.stale++;
      return last;
    }
    const mayComeByTcp = answer === "busy" && way === "udp";
    return (mayComeByTcp ? tcpInstead(query.bytes) : undefined) ?? servFail(query);
  }

  /**
   * A server's answer; `silent` when none answers, `busy` at once when the asker has used up its
   * share of questions under way.
   */
  async #forward(query: Query, asker: Asker, way: Way): Promise<Uint8Array | "silent" | "busy"> {
    const { turns, forwarder, counts, upstreams, stale, crowded } = this.#parts;
    const cut = new AbortController();
    using place = turns.forward(asker, way, () => cut.abort());
    if (place !== undefined) {
      counts.forwarded++;
      const answer = await forwarder.forward(query, way, upstreams(), cut.signal);
      if (answer !== undefined) stale?.keep(asker, query, answer);
      if (answer !== undefined) return answer;
      if (!cut.signal.aborted) {
        counts.timeouts++;
        return "silent";
      }
    }
    counts.refused++;
    crowded?.(asker);
    return "busy";
  }

  /** The pod an address is of. */
  #asker(from: string | undefined): Asker | undefined {
    const { network, askerAt } = this.#parts;
    const holder = from !== undefined && isIp(from) ? askerAt(parseIp(from)) : undefined;
    return holder === undefined ? undefined : { network, holder };
  }
}

/** The promise's value; undefined after `ms`. */
async function within<T>(promise: Promise<T>, ms: number): Promise<T | undefined> {
  const late = Promise.withResolvers<undefined>();
  const timer = setTimeout(() => late.resolve(undefined), ms);
  return await Promise.race([promise, late.promise]).finally(() => clearTimeout(timer));
}

/** Of an answer by UDP, whatever the guest says it takes: longer ones are had by TCP. */
const maxUdpBytes = 4096;
