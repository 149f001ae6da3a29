import type { IncomingMessage, ServerResponse } from "node:http";
import {
  constants,
  type Http2ServerRequest,
  type Http2ServerResponse,
  type ServerHttp2Stream,
} from "node:http2";
import { guarded } from "../../../core/guard.ts";

/** The rest of a request whose answer is ready. */
export interface RequestRest {
  /**
   * Resolves when the request has ended, or after a second. Reads the rest and throws it away, so
   * that it can end. Resolves at once for a request whose end the caller has not promised.
   */
  ended(): Promise<void>;
  /** Resolves when `ended` is asked for: whatever comes of the request from then on is not late. */
  readonly answered: Promise<void>;
}

/** The stream of a request's bytes. */
type Source = IncomingMessage | ServerHttp2Stream;

/** Longest wait for the rest of an answered request, milliseconds. */
const restMs = 1000;
/** Most of that rest that is read before the answer ends, bytes. */
const restBytes = 4 << 20;
/** Between two looks whether the answer's end has been sent, milliseconds. */
const lookMs = 50;

/**
 * Follows a request that is answered before it has ended. The answer must not end first if that can
 * be helped: over HTTP/2 curl 7.88, of Debian 12, misses the end of an answer that comes while it
 * is still sending, and waits for ever; later ones may report a failure to send (curl issue 22984).
 * So the answer's end waits for the request's. A request that does not end in time is asked for no
 * more over HTTP/2 (RFC 9113 8.1): its stream is reset without an error once the answer has gone.
 * Over HTTP/1.1 it is read on, for as long as a request may take.
 *
 * `promised` says that the request ends by itself: it has one message, or says its length. Any
 * other may go on until the answer ends, which therefore does not wait. `requestMs` is how long a
 * request may take, after which Node ends one of HTTP/1.1 by itself: its answer is sent before.
 */
export function followRest(
  request: IncomingMessage | Http2ServerRequest,
  response: ServerResponse | Http2ServerResponse,
  { promised, requestMs }: { readonly promised: boolean; readonly requestMs: number },
): RequestRest {
  const until = performance.now() + requestMs;
  const answered = Promise.withResolvers<void>();
  const stream = "stream" in request ? request.stream : undefined;
  const source: Source = "stream" in request ? request.stream : request;
  let discarded: Promise<void> | undefined;
  const discard = (): Promise<void> =>
    (discarded ??= discardRest(
      source,
      stream === undefined ? Math.min(restMs, Math.max(0, until - performance.now())) : restMs,
    ));
  // HTTP/2's response reports its `finish` when the stream has closed, which is what it would wait
  // for; the stream's comes before the trailers, which a close would drop.
  const finish = async (): Promise<void> => {
    if (source.readableEnded || source.destroyed) return;
    const ended = hasEnded(source);
    // Bytes that have arrived are discarded, too: unread, they would keep the stream from closing.
    const over = discard();
    if (ended || stream === undefined) return;
    wakeCaller(stream);
    await over;
    closeAnswered(stream);
  };
  (stream ?? (response as ServerResponse)).once(
    "finish",
    guarded("api", finish, () => source.destroy()),
  );
  return {
    answered: answered.promise,
    ended: () => {
      answered.resolve();
      return hasEnded(source) || !promised ? Promise.resolve() : discard();
    },
  };
}

/** An answer's body, whose end waits for the request's. */
export async function* endingAfter(
  body: AsyncIterable<Uint8Array> | undefined,
  rest: RequestRest,
): AsyncGenerator<Uint8Array> {
  if (body !== undefined) yield* body;
  await rest.ended();
}

/**
 * Whether all of the request has arrived, read or not. (nghttp2 says so only when Node has notified
 * its readers.)
 */
function hasEnded(source: Source): boolean {
  if (source.readableEnded || source.destroyed) return true;
  return "complete" in source ? source.complete : source.closed || source.state.remoteClose === 1;
}

/**
 * Reads what comes and drops it; resolves when the request has ended, is too long or takes too
 * long.
 */
function discardRest(source: Source, ms: number): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, Math.max(0, ms)).unref();
    const over = (): void => {
      clearTimeout(timer);
      resolve();
    };
    let left = restBytes;
    // Removes Node's own listener of HTTP/2, which stops the stream as soon as a request has no
    // reader, and the reader of HTTP/1.1's request, whose "readable" keeps it from flowing.
    source.removeAllListeners("data").removeAllListeners("readable");
    source.on("data", (chunk: Buffer) => {
      left -= chunk.length;
      if (left < 0) over();
    });
    source.once("end", over);
    source.once("close", over);
    source.resume();
  });
}

/**
 * A request that ends after its answer has: something must come for such a curl to look at the
 * stream again.
 */
function wakeCaller(stream: ServerHttp2Stream): void {
  const { session } = stream;
  const wake = (): void => {
    if (session?.destroyed === false) session.ping(() => {});
  };
  stream.once("end", guarded("api", wake));
}

/**
 * Resets a stream whose request has not ended, but not before the answer's last frame has gone,
 * which a reset would drop.
 */
function closeAnswered(stream: ServerHttp2Stream): void {
  if (hasEnded(stream)) return;
  if (stream.state.localClose !== 1) {
    const again = (): void => closeAnswered(stream);
    setTimeout(guarded("api", again), lookMs).unref();
    return;
  }
  stream.close(constants.NGHTTP2_NO_ERROR);
  stream.destroy();
}
