import { lookup } from "node:dns";
import { request as httpRequest } from "node:http";
import { request as httpsRequest } from "node:https";
import type { LookupFunction } from "node:net";
import { performAsync } from "../../core/effect.ts";

/** How a collector answered. */
export type Sent =
  | "taken"
  /** It has no room now, or is not there: later it may. */
  | "later"
  /** It does not take these spans, however often they are sent. */
  | "refused";

/** Answers that ask for another attempt (OTLP, "Retryable Response Codes"). */
const retryable: ReadonlySet<number | undefined> = new Set([429, 502, 503, 504]);

/**
 * Sends one `otlpBody` to a collector. Never rejects: a collector that is away concerns no call of
 * podnet's. `signal` ends the attempt.
 */
export function sendSpans(url: URL, body: string, signal: AbortSignal): Promise<Sent> {
  return performAsync("socket", "export spans", () => post(url, body, signal));
}

function post(url: URL, body: string, signal: AbortSignal): Promise<Sent> {
  const request = url.protocol === "https:" ? httpsRequest : httpRequest;
  const { promise, resolve } = Promise.withResolvers<Sent>();
  const headers = {
    "content-type": "application/json",
    "content-length": Buffer.byteLength(body),
  };
  const options = { method: "POST", headers, signal, agent: false, lookup: lookupCollector };
  const sending = request(url, options, (response) => {
    const { statusCode = 0 } = response;
    const taken = statusCode >= 200 && statusCode < 300;
    resolve(taken ? "taken" : retryable.has(statusCode) ? "later" : "refused");
    // What it says beyond that is not read: it may be endless.
    response.on("error", () => {});
    sending.destroy();
  });
  sending.on("error", () => resolve("later"));
  sending.end(body);
  return promise;
}

/**
 * Looks a name up once at a time. A lookup cannot be ended, and holds one of the few threads that
 * Node also reads and writes files with: when no server of names answers, the attempts of a minute
 * would hold all of them. An attempt that is made while a lookup is under way waits for its answer.
 */
export function oneAtATime(look: typeof lookup): LookupFunction {
  const underWay = new Map<string, Parameters<LookupFunction>[2][]>();
  return (hostname, options, callback) => {
    const key = JSON.stringify([hostname, options.all, options.family, options.hints]);
    const others = underWay.get(key);
    if (others !== undefined) {
      others.push(callback);
      return;
    }
    const callbacks = [callback];
    underWay.set(key, callbacks);
    look(hostname, options, (error, address, family) => {
      underWay.delete(key);
      for (const each of callbacks) each(error, address, family);
    });
  };
}

const lookupCollector = oneAtATime(lookup);
