import { request as httpRequest } from "node:http";
import { request as httpsRequest } from "node:https";
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
  const sending = request(url, { method: "POST", headers, signal, agent: false }, (response) => {
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
