import type { Ip } from "../../core/address.ts";
import { askUpstream, type Way } from "./ask-upstream.ts";
import { isTruncated, plainUdpBytes, type Query, rcodeOf, rcodes } from "./query.ts";

/**
 * Servers asked one after the other, and how long each has, milliseconds: all of it before a guest
 * asks again (5 s).
 */
const tries = 3;
const tryMs = 1400;

/** A server says that it cannot or will not. */
const isRefusal = (answer: Uint8Array): boolean =>
  [rcodes.servFail, rcodes.notImp, rcodes.refused].some((rcode) => rcode === rcodeOf(answer));

/** Hands questions on to the servers that know. */
export class Forwarder {
  readonly #ask: typeof askUpstream;
  /** Who answered last is asked first. */
  #best: Ip | undefined;

  constructor(ask: typeof askUpstream = askUpstream) {
    this.#ask = ask;
  }

  /**
   * The answer of the first server that has one; a refusal where there is nothing better. A single
   * server is asked a second time, since datagrams get lost; over TCP if its answer was cut shorter
   * than the guest would accept. Undefined without an answer, or when `signal` aborts.
   */
  async forward(
    query: Query,
    way: Way,
    servers: readonly Ip[],
    signal?: AbortSignal,
  ): Promise<Uint8Array | undefined> {
    const first = Math.max(0, servers.indexOf(this.#best as Ip));
    let refusal: Uint8Array | undefined;
    const refused = new Set<Ip>();
    for (let nth = 0; nth < tries; nth++) {
      const server = servers[(first + nth) % servers.length];
      if (server === undefined || refused.has(server)) break;
      const answer = await this.#ask(query, server, way, tryMs, signal);
      if (signal?.aborted === true) return undefined;
      if (answer === undefined) continue;
      if (!isRefusal(answer)) {
        this.#best = server;
        const mayAskOn = way === "udp" && isTruncated(answer) && nth + 1 < tries;
        return mayAskOn ? await this.#whole(query, server, answer, signal) : answer;
      }
      refused.add(server);
      refusal = answer;
    }
    return refusal;
  }

  /**
   * The whole of a truncated answer, unless the guest has room only for the truncated one, or the
   * whole is unavailable.
   */
  async #whole(
    query: Query,
    server: Ip,
    short: Uint8Array,
    signal: AbortSignal | undefined,
  ): Promise<Uint8Array> {
    if (query.udpBytes <= plainUdpBytes) return short;
    const whole = await this.#ask(query, server, "tcp", tryMs, signal);
    return whole === undefined || isRefusal(whole) ? short : whole;
  }
}
