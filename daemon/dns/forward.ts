import type { Ip } from "../../core/address.ts";
import { askUpstream, type Way } from "./ask-upstream.ts";
import { type Query, rcodeOf, rcodes } from "./query.ts";

/** Servers asked one after the other, and how long each has, milliseconds: all of it before a guest asks again (5 s). */
const tries = 3;
const tryMs = 1400;

/** A server says that it cannot or will not. */
const isRefusal = (answer: Uint8Array): boolean =>
  [rcodes.servFail, rcodes.notImp, rcodes.refused].some((rcode) => rcode === rcodeOf(answer));

/** Hands questions on to the servers that know. Nothing is kept of what they say: guests have caches, and so have servers. */
export class Forwarder {
  readonly #ask: typeof askUpstream;
  /** Who answered last is asked first. */
  #best: Ip | undefined;

  constructor(ask: typeof askUpstream = askUpstream) {
    this.#ask = ask;
  }

  /**
   * The answer of the first server that has one; a refusal where there is nothing better. One server alone is asked again:
   * datagrams get lost. Undefined when none answers.
   */
  async forward(query: Query, way: Way, servers: readonly Ip[]): Promise<Uint8Array | undefined> {
    const first = Math.max(0, servers.indexOf(this.#best as Ip));
    let refusal: Uint8Array | undefined;
    const refused = new Set<Ip>();
    for (let nth = 0; nth < tries; nth++) {
      const server = servers[(first + nth) % servers.length];
      if (server === undefined || refused.has(server)) break;
      const answer = await this.#ask(query, server, way, tryMs);
      if (answer === undefined) continue;
      if (!isRefusal(answer)) {
        this.#best = server;
        return answer;
      }
      refused.add(server);
      refusal = answer;
    }
    return refusal;
  }
}
