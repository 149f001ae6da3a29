import { guarded } from "../../core/guard.ts";
import type { Socket } from "node:net";

/**
 * Starts of a connection: HTTP/2 begins with this preface (RFC 9113 3.4), HTTP/1.1 with another
 * method.
 */
const http2Preface = "PRI * HTTP/2.0";

/**
 * Reads the bytes that determine the protocol, puts them back, and hands the connection on. A
 * connection whose protocol is unknown after `ms` is ended, however often it sends something, and
 * `silent` is called.
 */
export function sniff(
  socket: Socket,
  { ms, silent }: { readonly ms: number; silent(): void },
  decide: (http2: boolean) => void,
): void {
  let head = Buffer.alloc(0);
  const end = (): void => void socket.destroy();
  const late = (): void => {
    silent();
    end();
  };
  const timer = setTimeout(guarded("api", late, end), ms).unref();
  socket.once("close", () => clearTimeout(timer));
  const read = (): void => {
    for (;;) {
      const chunk = socket.read() as Buffer | null;
      if (chunk === null) return;
      head = Buffer.concat([head, chunk]);
      const start = head.subarray(0, http2Preface.length).toString("latin1");
      if (start !== http2Preface && http2Preface.startsWith(start)) continue;
      socket.off("readable", onReadable);
      clearTimeout(timer);
      socket.unshift(head);
      decide(start === http2Preface);
      return;
    }
  };
  const onReadable = guarded("api", read, end);
  socket.on("readable", onReadable);
}
