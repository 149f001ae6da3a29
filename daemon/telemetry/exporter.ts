import { hostname } from "node:os";
import type { FinishedSpan } from "../../api/telemetry/otlp.ts";
import { otlpBody } from "../../api/telemetry/otlp.ts";
import { type Sent, sendSpans } from "../../api/telemetry/send-spans.ts";
import { guard, guarded } from "../../core/guard.ts";
import type { Log } from "../../linux/log.ts";

/** Spans that wait for the collector at most; further ones are dropped, and counted. */
const mostWaiting = 2048;
/** Spans in one request. */
const batch = 512;
/** Between two attempts, milliseconds. */
const everyMs = 2000;
/** Longest that the collector may take for an answer, milliseconds. */
const answerMs = 5000;
/** Longest that podnetd's end waits for the collector, milliseconds. */
const lastMs = 2000;

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
  #attempt: AbortController | undefined;
  /** podnetd ends, and has waited long enough. */
  #isOver = false;

  constructor(options: ExporterOptions) {
    this.#options = options;
    this.#timer = setInterval(
      guarded("api", () => this.#sendSoon()),
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
    while (this.#waiting.length > 0 && !this.#isOver) {
      const spans = this.#waiting.slice(0, batch);
      const sent = await this.#send(spans).catch((defect: unknown) => {
        // Spans that cannot be sent must not stand before all others for good.
        this.#remove(spans, "refused");
        throw defect;
      });
      this.#remove(spans, sent);
      this.#report(sent);
      if (sent === "later") return;
    }
  }

  async #send(spans: readonly FinishedSpan[]): Promise<Sent> {
    const { url, send = sendSpans } = this.#options;
    const attempt = new AbortController();
    this.#attempt = attempt;
    const limit = setTimeout(
      guarded("api", () => attempt.abort()),
      answerMs,
    );
    try {
      return await send(url, otlpBody("podnetd", hostname(), spans), attempt.signal);
    } finally {
      clearTimeout(limit);
    }
  }

  #remove({ length }: readonly FinishedSpan[], sent: Sent): void {
    if (sent !== "later") this.#waiting.splice(0, length);
    if (sent === "refused") this.#dropped += length;
  }

  #report(sent: Sent): void {
    const { url, log } = this.#options;
    const away = sent !== "taken";
    if (away && !this.#away)
      log.warn(
        { url: url.href, hint: "See whether a collector takes OTLP by HTTP at tracing.endpoint" },
        sent === "refused" ? "The collector refuses spans" : "The collector does not take spans",
      );
    if (!away && this.#away) log.info({ url: url.href }, "The collector takes spans again");
    this.#away = away;
  }

  /** One last attempt for what waits, for `lastMs` at most. Never rejects. */
  async [Symbol.asyncDispose](): Promise<void> {
    clearInterval(this.#timer);
    const limit = setTimeout(
      guarded("api", () => {
        this.#isOver = true;
        this.#attempt?.abort();
      }),
      lastMs,
    );
    await guard("api", async () => {
      await this.#sending;
      await this.#sendSoon();
    });
    clearTimeout(limit);
  }
}
