import { type Ip, isIp, parseIp } from "../../core/address.ts";
import type { HolderId } from "../store/holder.ts";
import type { Way } from "./ask-upstream.ts";
import type { Forwarder } from "./forward.ts";
import { type Query, readQuery, truncated } from "./query.ts";
import { replyOf, servFail, wrongQuery } from "./reply.ts";
import type { Turns } from "./turns.ts";
import { lookUp, type Zone } from "./zone.ts";

/** What has become of questions since podnetd started. */
export interface ResolverCounts {
  /** Asked by pods. */
  queries: number;
  /** Handed on to other servers. */
  forwarded: number;
  /** Not answered, or only by saying so: of nobody's, too many, or senseless. */
  refused: number;
  /** Handed on and not answered in time. */
  timeouts: number;
}

export interface ResolverParts {
  /** What a pod that asks may be told. */
  zoneOf(asker: HolderId): Zone;
  readonly turns: Turns;
  readonly forwarder: Pick<Forwarder, "forward">;
  readonly counts: ResolverCounts;
  /** Whose address this is on the network; undefined where it is no pod's. */
  askerAt(ip: Ip): HolderId | undefined;
  upstreams(): readonly Ip[];
}

/** Answers the pods of one network, of all the networks they are on, and nobody else. */
export class Resolver {
  readonly #parts: ResolverParts;

  constructor(parts: ResolverParts) {
    this.#parts = parts;
  }

  /** Takes a place for a connection; undefined for those who are not served, and when there are too many. */
  connection(from: string | undefined): Disposable | undefined {
    const asker = this.#asker(from);
    const place = asker === undefined ? undefined : this.#parts.turns.connection(asker);
    if (place === undefined) this.#parts.counts.refused++;
    return place;
  }

  /** What to say to who asked; undefined is nothing. */
  async answer(
    bytes: Uint8Array,
    from: string | undefined,
    way: Way,
  ): Promise<Uint8Array | undefined> {
    const { counts, turns } = this.#parts;
    const asker = this.#asker(from);
    if (asker === undefined || !turns.ask(asker)) {
      counts.refused++;
      return undefined;
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

  async #answerOf(query: Query, asker: HolderId, way: Way): Promise<Uint8Array> {
    const { zoneOf, turns, forwarder, counts, upstreams } = this.#parts;
    const found = lookUp(query, zoneOf(asker));
    if (found.kind !== "elsewhere") return replyOf(query, found);
    using place = turns.forward(asker);
    if (place === undefined) {
      counts.refused++;
      return servFail(query);
    }
    counts.forwarded++;
    const answer = await forwarder.forward(query, way, upstreams());
    if (answer === undefined) counts.timeouts++;
    return answer ?? servFail(query);
  }

  /** The pod an address is of. */
  #asker(from: string | undefined): HolderId | undefined {
    return from !== undefined && isIp(from) ? this.#parts.askerAt(parseIp(from)) : undefined;
  }
}

/** Of an answer by UDP, whatever the guest says it takes: longer ones are had by TCP. */
const maxUdpBytes = 4096;
