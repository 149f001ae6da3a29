import { constants, type ServerHttp2Session } from "node:http2";
import type { Socket } from "node:net";
import { errorToJsonBytes } from "@connectrpc/connect/protocol-connect";
import { toConnectError } from "../../api/codes.ts";
import type { PodnetError } from "../../core/errors.ts";
import { sniff } from "./sniff.ts";

/** How long a client may take to begin, and to read why its connection is refused, milliseconds. */
const lastMessageMs = 1000;
/** Clients that are sent a refusal at a time; further connections are ended without one. */
const mostAtOnce = 64;

/**
 * Ends a refused connection, and sends its client the reason in its own protocol: status 429 with
 * `ErrorInfo` (HTTP/1.1), or a GOAWAY that clients take for RESOURCE_EXHAUSTED (HTTP/2).
 */
export class TurnAway {
  #atOnce = 0;

  /** A connection that nothing has read from yet. */
  unread(socket: Socket, why: PodnetError): void {
    if (!this.#begin(socket)) return;
    sniff(socket, { ms: lastMessageMs, silent() {} }, (isHttp2) => {
      socket.end(isHttp2 ? goAway(why.message) : answer(why));
      socket.resume();
    });
  }

  /** A connection that a session of HTTP/2 has been made on, or that HTTP/1.1 is spoken on. */
  begun(socket: Socket, session: ServerHttp2Session | undefined, why: PodnetError): void {
    if (!this.#begin(socket)) return;
    if (session === undefined) {
      socket.end(answer(why));
      return;
    }
    session.goaway(constants.NGHTTP2_ENHANCE_YOUR_CALM, 0, Buffer.from(why.message));
    session.destroy();
  }

  /** Bounds the time that is left of a connection; false when it ends at once. */
  #begin(socket: Socket): boolean {
    if (this.#atOnce >= mostAtOnce) {
      socket.destroy();
      return false;
    }
    this.#atOnce++;
    const timer = setTimeout(() => socket.destroy(), lastMessageMs).unref();
    socket.once("close", () => {
      this.#atOnce--;
      clearTimeout(timer);
    });
    return true;
  }
}

/** An answer of HTTP/1.1 as Connect's clients read it. */
function answer(why: PodnetError): Buffer {
  const body = errorToJsonBytes(toConnectError(why), undefined);
  const head = `HTTP/1.1 429 Too Many Requests\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: ${body.length}`;
  return Buffer.concat([Buffer.from(`${head}\r\n\r\n`), body]);
}

/** The server's preface, empty SETTINGS, and GOAWAY (RFC 9113 3.4 and 6.8). */
function goAway(message: string): Buffer {
  const text = Buffer.from(message);
  const head = Buffer.from([0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0]);
  head.writeUIntBE(8 + text.length, 9, 3);
  const last = Buffer.alloc(8);
  last.writeUInt32BE(constants.NGHTTP2_ENHANCE_YOUR_CALM, 4);
  return Buffer.concat([head, last, text]);
}
