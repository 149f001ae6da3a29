import { guarded } from "../../core/guard.ts";
import type { ServerHttp2Session } from "node:http2";

/**
 * Ends a session when a request's headers have begun and are not complete within `ms`, or a quarter
 * more; `late` is called. Node 24.21 reports a request when its headers are complete, and its
 * time-out begins anew with every byte.
 *
 * nghttp2's last seen stream shows that headers have begun; but it also counts streams that nghttp2
 * refused by itself. A ping tells the two apart: within headers a peer may send nothing but the
 * rest of them (RFC 9113 6.10), so that it cannot answer.
 */
export function boundHeaders(session: ServerHttp2Session, ms: number, late: () => void): void {
  let complete = 0;
  let asked = 0;
  session.on("stream", ({ id = 0 }) => {
    complete = Math.max(complete, id);
  });
  const limits = new Set<NodeJS.Timeout>();
  const look = (): void => {
    if (session.destroyed) return;
    const begun = session.state.lastProcStreamID ?? 0;
    if (begun <= Math.max(complete, asked)) return;
    asked = begun;
    const onLate = (): void => {
      limits.delete(limit);
      if (complete >= begun) return;
      late();
      session.destroy();
    };
    const limit = setTimeout(guarded("api", onLate), ms).unref();
    limits.add(limit);
    session.ping(() => {
      clearTimeout(limit);
      limits.delete(limit);
    });
  };
  const drop = (): void => session.destroy();
  const timer = setInterval(guarded("api", look, drop), ms / 4).unref();
  session.once("close", () => {
    clearInterval(timer);
    for (const limit of limits) clearTimeout(limit);
  });
}
