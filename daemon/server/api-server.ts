import {
  createServer as createHttp1,
  type Server as Http1Server,
  type ServerOptions as Http1Options,
} from "node:http";
import {
  createServer as createHttp2,
  type Http2SecureServer,
  type Http2Server,
  type SecureServerOptions,
  type ServerHttp2Session,
} from "node:http2";
import type { Socket } from "node:net";
import type { TLSSocket } from "node:tls";
import type { ConnectRouter } from "@connectrpc/connect";
import { systemClock } from "../../core/clock.ts";
import { PodnetError } from "../../core/errors.ts";
import type { AccessConfig } from "../config/access.ts";
import type { TcpConfig } from "../config/config.ts";
import type { ApiLimits } from "../config/limits.ts";
import { type Caller, Callers } from "./callers.ts";
import type { HealthAnswer, HealthPage } from "./health-pages.ts";
import { tlsPeer, unixPeer } from "./peer.ts";
import { type Request, requestHandler } from "./request-handler.ts";
import { boundHeaders } from "./slow-headers.ts";
import { sniff } from "./sniff.ts";
import { listenTls } from "./tls-listener.ts";
import { listenUnix, type UnixListenerOptions } from "./unix-listener.ts";

export interface ApiServerOptions {
  readonly unix: UnixListenerOptions;
  readonly tcp: TcpConfig | undefined;
  readonly access: AccessConfig;
  readonly limits: ApiLimits;
  routes(router: ConnectRouter): void;
  /** What `GET /metrics` answers, in Prometheus' text format. */
  metrics(): Promise<{ readonly type: string; readonly text: string }>;
  /** What `GET /healthz` and `GET /readyz` answer. */
  health(page: HealthPage): Promise<HealthAnswer>;
  /** Told of everything refused or cut, by a reason from a small set. */
  refused(reason: string): void;
}

/** gRPC, gRPC-Web and JSON on one socket: which of them is told by the first bytes. */
export interface ApiServer {
  /** Connections there are now. */
  readonly connections: number;
  /** Takes no new connection, ends streams, and waits for answers under way up to `graceMs`. */
  close(graceMs: number): Promise<void>;
}

/** A request's headers, in all, bytes. */
const headerBytes = 16_384;

const http1Options = ({ requestMs }: ApiLimits): Http1Options => ({
  maxHeaderSize: headerBytes,
  headersTimeout: Math.min(requestMs, 60_000),
  requestTimeout: requestMs,
  connectionsCheckingInterval: Math.min(requestMs, 5_000),
});

// nghttp2 itself ends a session that floods it with pings, settings, resets or continuations, and Node one with a
// thousand invalid frames; fewer would end that of a caller whose large requests were refused while under way.
const http2Options = (limits: ApiLimits): SecureServerOptions => ({
  maxHeaderListPairs: 64,
  settings: {
    maxConcurrentStreams: Math.min(limits.requestsPerCaller, 1024),
    maxHeaderListSize: headerBytes,
  },
});

export async function serveApi(options: ApiServerOptions): Promise<ApiServer> {
  const { limits, access, refused } = options;
  const ending = new AbortController();
  const callers = new Callers({ access, limits, clock: systemClock });
  const known = new WeakMap<object, Caller>();
  const sockets = new Set<Socket>();
  const nobody = callers.caller({ kind: "unknown" });
  const handler = requestHandler({
    ...options,
    ending: ending.signal,
    callerOf: (request) => known.get(connectionOf(request)) ?? nobody,
  });
  const http1 = createHttp1(http1Options(limits), handler);
  followHttp1(http1, refused);
  const http2 = createHttp2(http2Options(limits), handler);
  followHttp2(http2, limits, refused);
  let arriving = nobody;
  // Emitted while the connection is handed over below, which is the one moment both ends of it are known.
  http2.on("session", (session: ServerHttp2Session) => {
    known.set(session, arriving);
  });

  /** Counts a connection for as long as it is open; undefined when it is one too many, and is gone. */
  const admit = (socket: Socket, caller: Caller): Caller | undefined => {
    const place = caller.connection();
    if (place === undefined) {
      refused("connections_per_caller");
      socket.destroy();
      return undefined;
    }
    known.set(socket, caller);
    sockets.add(socket);
    socket.once("close", () => {
      place[Symbol.dispose]();
      sockets.delete(socket);
    });
    return caller;
  };
  let unixConnections = 0;
  const accept = (socket: Socket): void => {
    socket.on("error", () => socket.destroy());
    if (unixConnections >= limits.connections) {
      refused("connections");
      socket.destroy();
      return;
    }
    unixConnections++;
    socket.once("close", () => unixConnections--);
    const caller = admit(socket, callers.caller(unixPeer(socket)));
    if (caller === undefined) return;
    const silent = (): void => refused("silent");
    sniff(socket, { ms: limits.requestMs, silent }, (isHttp2) => {
      arriving = caller;
      (isHttp2 ? http2 : http1).emit("connection", socket);
    });
  };
  const { tcp } = options;
  const tls =
    tcp === undefined
      ? undefined
      : await listenTls({
          tcp,
          http: { ...http2Options(limits), ...http1Options(limits) },
          connections: limits.connections,
          onRequest: handler,
          onConnection: (socket) => void admit(socket, callers.caller(tlsPeer(socket))),
          refused,
        });
  if (tls !== undefined) {
    followHttp1(tls as unknown as Http1Server, refused);
    followHttp2(tls, limits, refused);
    // Its socket is the one `secureConnection` told of, behind a proxy that is not equal to it.
    tls.on("session", (session) => {
      known.set(session, callers.caller(tlsPeer(session.socket as TLSSocket)));
    });
  }
  const unix = await listenUnix(options.unix, accept).catch((thrown: unknown) => {
    tls?.close();
    throw thrown;
  });
  // Neither listens itself. Node's clocks for slow requests start with this, and end with close().
  http1.emit("listening");

  return {
    get connections() {
      return sockets.size;
    },
    async close(graceMs) {
      unix.close();
      tls?.close();
      ending.abort(
        new PodnetError("DAEMON_UNREACHABLE", "podnetd ends", {
          hint: "Try again when it runs again",
        }),
      );
      // Both let answers under way be sent, and end what is idle.
      http2.close();
      http1.close();
      await drained(sockets, graceMs);
      for (const socket of sockets) socket.destroy();
    },
  };
}

/** What a request came on: a session of HTTP/2, or the socket itself. */
function connectionOf(request: Request): object {
  return ("stream" in request ? request.stream.session : undefined) ?? request.socket;
}

/** Counts what Node's own HTTP/1.1 server refuses. */
function followHttp1(server: Http1Server, refused: (reason: string) => void): void {
  server.on("clientError", (error: NodeJS.ErrnoException, socket) => {
    const answers: Readonly<Record<string, readonly [reason: string, status: string]>> = {
      ERR_HTTP_REQUEST_TIMEOUT: ["slow_request", "408 Request Timeout"],
      HPE_HEADER_OVERFLOW: ["headers", "431 Request Header Fields Too Large"],
    };
    // A connection that broke was not refused.
    if (error.code === "ECONNRESET" || !socket.writable) {
      socket.destroy();
      return;
    }
    const [reason, status] = answers[error.code ?? ""] ?? ["bad_request", "400 Bad Request"];
    refused(reason);
    socket.end(`HTTP/1.1 ${status}\r\nConnection: close\r\n\r\n`, () => socket.destroy());
  });
}

/** Ends sessions that ask for nothing or do not end what they ask for, and counts those that break the protocol. */
function followHttp2(
  server: Http2Server | Http2SecureServer,
  { idleMs, requestMs }: ApiLimits,
  refused: (reason: string) => void,
): void {
  server.on("sessionError", () => refused("http2"));
  server.on("session", (session: ServerHttp2Session) => {
    boundHeaders(session, requestMs, () => refused("slow_request"));
    let streams = 0;
    session.on("stream", (stream) => {
      streams++;
      stream.once("close", () => {
        streams--;
      });
    });
    session.setTimeout(idleMs, () => {
      if (streams > 0) return;
      refused("idle");
      session.close();
    });
  });
}

/** Resolves when no connection is left, or when time is up. */
async function drained(sockets: Set<Socket>, graceMs: number): Promise<void> {
  const limit = Promise.withResolvers<void>();
  const timer = setTimeout(limit.resolve, graceMs);
  const closed = Promise.all(
    [...sockets].map((socket) => new Promise((resolve) => socket.once("close", resolve))),
  );
  await Promise.race([closed, limit.promise]);
  clearTimeout(timer);
}
