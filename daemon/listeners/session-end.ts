import { guarded } from "../../core/guard.ts";
import type { ServerHttp2Session } from "node:http2";
import type { Socket } from "node:net";

/** Between two looks for sessions that are over while their connection is not, milliseconds. */
const lookMs = 1000;

/**
 * Ends a session that has had no stream for `ms`, and calls `idle` then; ends the connection of a
 * session that is over, from either end, within two seconds.
 *
 * Node 24.21 does neither. The timer of `session.setTimeout()` is not cleared when a session closes
 * (`closeSession` marks it destroyed first, and `setTimeout(0)` of a destroyed session does
 * nothing), so that the session stays in the heap until it fires; and it fires once, so that a
 * session which has a stream then is never ended. A session that is closed or destroyed waits
 * without limit until its client has read everything, and when it was closed also until the client
 * has closed its own end.
 */
export function boundEnd(
  session: ServerHttp2Session,
  socket: Socket,
  { ms, idle }: { readonly ms: number; idle(): void },
): void {
  let streams = 0;
  let idleTimer: NodeJS.Timeout | undefined;
  const arm = (): void => {
    idleTimer = setTimeout(
      guarded("api", () => {
        if (session.closed || session.destroyed) return;
        idle();
        session.close();
      }),
      ms,
    ).unref();
  };
  arm();
  session.on("stream", (stream) => {
    streams++;
    clearTimeout(idleTimer);
    stream.once("close", () => {
      if (--streams === 0) arm();
    });
  });
  let over = false;
  const look = setInterval(
    guarded("api", () => {
      if (over) socket.destroy();
      over = session.destroyed || (session.closed && streams === 0);
    }),
    lookMs,
  ).unref();
  socket.once("close", () => {
    clearTimeout(idleTimer);
    clearInterval(look);
  });
}
