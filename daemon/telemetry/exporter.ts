import { hostname } from "node:os";
import type { FinishedSpan } from "../../api/telemetry/otlp.ts";
import { otlpBody } from "../../api/telemetry/otlp.ts";
import { type Sent, sendSpans } from "../../api/telemetry/send-spans.ts";
import { guarded } from "../../core/guard.ts";
import type { Log } from "../../linux/log.ts";

/** Spans that wait for the collector at most; further ones are dropped, and counted. */
const mostWaiting = 2048;
/** Spans in one request. */
const batch = 512;
/** Between two attempts, milliseconds. */
const everyMs = 2000;
/** Longest that the collector may take for an answer, milliseconds. */
const answerMs = 5000;

export interface ExporterOptions {
  readonly url: URL;
  readonly log: Log;
  /** Sends a body instead of the network, for tests. */
  readonly send?: (url: URL, body: string, signal: AbortSignal) => Promise<Sent>;
}

/**
 * Sends finished spans to a collector, in batches and in the background. A collector that is slow,
 * or away, costs at most `mostWaiting` spans of memory.
 */
export class Exporter implements AsyncDisposable {
  readonly #options: ExporterOptions;
  readonly #timer: NodeJS.Timeout;
  #waiting: FinishedSpan[] = [];
  #sending: Promise<void> | undefined;
  #dropped = 0;
  /** Whether the last attempt failed, so that the log says a change once. */
  #away = false;

  constructor(options: ExporterOptions) {
    this.#options = options;
    this.#timer = setInterval(
      guarded("api", () => void this.#sendSoon()),
      everyMs,
    );
    this.#timer.unref();
  }

  /** Spans that were dropped so far. */
  get dropped(): number {
    return this.#dropped;
  }

  add(span: FinishedSpan): void {
    if (this.#waiting.length >= mostWaiting) this.#dropped++;
    else this.#waiting.push(span);
  }

  /** Sends what waits, as one attempt a batch; an attempt under way is joined. */
  #sendSoon(): Promise<void> {
    this.#sending ??= this.#sendAll().finally(() => {
      this.#sending = undefined;
    });
    return this.#sending;
  }

  async #sendAll(): Promise<void> {
    const { url, log, send = sendSpans } = this.#options;
    while (this.#waiting.length > 0) {
      const spans = this.#waiting.slice(0, batch);
      const body = otlpBody("podnetd", hostname(), spans);
      const sent = await send(url, body, AbortSignal.timeout(answerMs));
      if (sent !== "later") this.#waiting.splice(0, spans.length);
      if (sent === "refused") this.#dropped += spans.length;
      const away = sent !== "taken";
      if (away && !this.#away)
        log.warn(
          { url: url.href, hint: "See whether a collector takes OTLP by HTTP at tracing.endpoint" },
          sent === "refused" ? "The collector refuses spans" : "The collector does not take spans",
        );
      if (!away && this.#away) log.info({ url: url.href }, "The collector takes spans again");
      this.#away = away;
      if (sent === "later") return;
    }
  }

  /** One last attempt for what waits. */
  async [Symbol.asyncDispose](): Promise<void> {
    clearInterval(this.#timer);
    await this.#sending;
    await this.#sendSoon();
  }
}
