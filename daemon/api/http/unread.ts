import { guarded } from "../../../core/guard.ts";
import type { ServerResponse } from "node:http";
import { constants, type Http2ServerResponse } from "node:http2";

/**
 * An answer's body that must be read: each chunk, and after the last one the end of the exchange. A
 * chunk that is not read for `ms` cuts the caller's stream (HTTP/2) or connection (HTTP/1.1), and
 * `cut` is called. Nothing is buffered meanwhile: the producer of the chunks waits.
 */
export function unread(
  body: AsyncIterable<Uint8Array>,
  response: ServerResponse | Http2ServerResponse,
  ms: number,
  cut: () => void,
): AsyncGenerator<Uint8Array> {
  let timer: NodeJS.Timeout | undefined;
  let closed = false;
  const { once } = response as ServerResponse;
  once.call(response, "close", () => {
    closed = true;
    clearTimeout(timer);
  });
  const arm = (): void => {
    if (closed) return;
    timer = setTimeout(
      guarded("api", () => {
        cut();
        cutOff(response);
      }),
      ms,
    ).unref();
  };
  async function* watched(): AsyncGenerator<Uint8Array> {
    try {
      for await (const chunk of body) {
        arm();
        yield chunk;
        clearTimeout(timer);
      }
    } finally {
      clearTimeout(timer);
      // Until it is closed: the last chunk may still lie in a buffer, and a request's rest may
      // never come.
      arm();
    }
  }
  return watched();
}

/** Ends a caller's stream at once, with what is not yet sent. */
function cutOff(response: ServerResponse | Http2ServerResponse): void {
  if (!("stream" in response)) {
    response.socket?.destroy();
    return;
  }
  // A stream that is gone already is what was wanted.
  response.stream?.close(constants.NGHTTP2_ENHANCE_YOUR_CALM);
  response.stream?.destroy();
}
