import {
  createServer as createHttp1,
  type Server as Http1Server,
  type ServerOptions as Http1Options,
  type ServerResponse,
} from "node:http";
import {
  createServer as createHttp2,
  type Http2SecureServer,
  type Http2Server,
  type SecureServerOptions,
} from "node:http2";
import type { Socket } from "node:net";
import type { Duplex } from "node:stream";
import type { DescMethod } from "@bufbuild/protobuf";
import type { ConnectRouter, Interceptor } from "@connectrpc/connect";
import type { Role } from "../../api/roles.ts";
import { systemClock } from "../../core/clock.ts";
import { loopTurns } from "../../linux/loop-turns.ts";
import { PodnetError } from "../../core/errors.ts";
import { guarded } from "../../core/guard.ts";
import type { AccessConfig } from "../config/access.ts";
import type { TcpConfig } from "../config/config.ts";
import type { ApiLimits } from "../config/limits.ts";
import { type Caller, Callers } from "../listeners/callers.ts";
import { Connections } from "../listeners/connections.ts";
import type { HealthAnswer, HealthPage } from "./http/health-pages.ts";
import { tlsPeer, unixPeer } from "../listeners/peer.ts";
import { type PlainRequest, requestHandler } from "./http/request-handler.ts";
import type { Request } from "../listeners/http.ts";
import { headerBytes } from "./http/request-headers.ts";
import { sniff } from "../listeners/sniff.ts";
import { listenTls } from "../listeners/tls-listener.ts";
import { upgradeHandler, type UpgradeRequest } from "./http/upgrade.ts";
import { listenUnix, type UnixListenerOptions } from "../listeners/unix-listener.ts";

export interface ApiServerOptions {
  readonly unix: UnixListenerOptions;
  readonly tcp: TcpConfig | undefined;
  readonly access: AccessConfig;
  readonly limits: ApiLimits;
  routes(router: ConnectRouter): void;
  /** The least role that may call a method; unless given, as podnet's API has it. */
  roleFor?(method: DescMethod): Role;
  /** The answer to `GET /metrics`, in Prometheus' text format. */
  metrics(): Promise<{ readonly type: string; readonly text: string }>;
  /** The answer to `GET /healthz` and `GET /readyz`. */
  health(page: HealthPage): Promise<HealthAnswer>;
  /** Around each call of a method. */
  readonly interceptors?: readonly Interceptor[];
  /** Answers paths that are no methods, instead of the metrics and the health pages. */
  plain?(request: PlainRequest): Promise<void>;
  /** Takes over connections of HTTP/1.1 that ask for it; absent: such a request is like others. */
  upgrade?(request: UpgradeRequest): Promise<void>;
  /** Notified of everything refused or cut, by a reason from a small set. */
  refused(reason: string): void;
  /**
   * Texts of answers are sent as they are, and not made such that they may be shown: what a caller
   * said has to come back unchanged.
   */
  readonly verbatim?: boolean;
}

/** gRPC, gRPC-Web and JSON on one socket, distinguished by the first bytes. */
export interface ApiServer {
  /** Connections there are now. */
  readonly connections: number;
  /** Takes no new connection, ends streams, and waits for answers under way up to `graceMs`. */
  close(graceMs: number): Promise<void>;
}

/** How long a client may take to read why its connection ends, milliseconds. */
const lastMessageMs = 1000;

const http1Options = ({ requestMs }: ApiLimits): Http1Options => ({
  maxHeaderSize: headerBytes,
  headersTimeout: Math.min(requestMs, 60_000),
  requestTimeout: requestMs,
  connectionsCheckingInterval: Math.min(requestMs, 5_000),
});

// nghttp2 itself ends a session that floods it with pings, settings, resets or continuations, and
// Node one with a thousand invalid frames; fewer would end that of a caller whose large requests
// were refused while under way.
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
  const callers = new Callers({ access, limits, clock: systemClock, turns: loopTurns });
  const unknown = callers.caller({ kind: "unknown" });
  const connections = new Connections({ limits, unknown, refused });
  const handle = requestHandler({
    ...options,
    ending: ending.signal,
    callerOf: (request) => connections.callerOf(request),
  });
  const handler = guarded("api", handle, (_request, response) =>
    (response as ServerResponse).destroy(),
  );
  const http1 = createHttp1(http1Options(limits), handler);
  followHttp1(http1, connections, refused);
  offerUpgrade(http1, options, connections, ending.signal);
  const http2 = createHttp2(http2Options(limits), handler);
  followHttp2(http2, refused);
  const accept = (socket: Socket): void => {
    socket.on("error", () => socket.destroy());
    const caller = callers.caller(unixPeer(socket));
    if (!connections.admitUnix(socket, caller)) return;
    const silent = (): void => refused("silent");
    sniff(socket, { ms: limits.requestMs, silent }, (isHttp2) => {
      if (isHttp2) connections.handOn(http2, socket, caller);
      else http1.emit("connection", socket);
    });
  };
  const { tcp } = options;
  const tls =
    tcp === undefined
      ? undefined
      : await listenTls({
          tcp,
          http: { ...http2Options(limits), ...http1Options(limits) },
          limits,
          onRequest: handler,
          onConnection: (socket, session) =>
            connections.admitTls(socket, callers.caller(tlsPeer(socket)), session),
          refused,
        });
  if (tls !== undefined) {
    followHttp1(tls.server as unknown as Http1Server, connections, refused);
    followHttp2(tls.server, refused);
  }
  const unix = await listenUnix(
    options.unix,
    guarded("api", accept, (socket) => socket.destroy()),
  ).catch((thrown: unknown) => {
    tls?.close();
    throw thrown;
  });
  // Neither listens itself. Node's clocks for slow requests start with this, and end with close().
  http1.emit("listening");

  return {
    get connections() {
      return connections.size;
    },
    async close(graceMs) {
      unix.close();
      tls?.close();
      ending.abort(
        new PodnetError("DAEMON_UNREACHABLE", "podnetd ends", {
          hint: "Try again when podnetd runs again",
        }),
      );
      // Both let answers under way be sent, and end what is idle.
      http2.close();
      http1.close();
      await connections.drain(graceMs);
    },
  };
}

/** Without a listener Node takes a request to upgrade for any other one. */
function offerUpgrade(
  server: Http1Server,
  { upgrade }: Pick<ApiServerOptions, "upgrade">,
  connections: Connections,
  ending: AbortSignal,
): void {
  if (upgrade === undefined) return;
  const callerOf = (request: Request): Caller => connections.callerOf(request);
  server.on(
    "upgrade",
    guarded("api", upgradeHandler({ upgrade, callerOf, ending }), (_request, socket) =>
      socket.destroy(),
    ),
  );
}

/**
 * Answers and counts the requests that Node's own HTTP/1.1 server refuses. A connection that is not
 * admitted is not counted here: its TLS handshake failed, which is counted there, and data written
 * to it would never be sent.
 */
function followHttp1(
  server: Http1Server,
  admitted: Connections,
  refused: (reason: string) => void,
): void {
  const refuse = (error: NodeJS.ErrnoException, socket: Duplex): void => {
    const answers: Readonly<Record<string, readonly [reason: string, status: string]>> = {
      ERR_HTTP_REQUEST_TIMEOUT: ["slow_request", "408 Request Timeout"],
      HPE_HEADER_OVERFLOW: ["headers", "431 Request Header Fields Too Large"],
    };
    // A connection that broke was not refused.
    if (error.code === "ECONNRESET" || !socket.writable || !admitted.has(socket)) {
      socket.destroy();
      return;
    }
    const [reason, status] = answers[error.code ?? ""] ?? ["bad_request", "400 Bad Request"];
    refused(reason);
    socket.end(`HTTP/1.1 ${status}\r\nConnection: close\r\n\r\n`, () => socket.destroy());
    // A client that takes nothing holds its connection no longer for that.
    setTimeout(() => socket.destroy(), lastMessageMs).unref();
  };
  server.on(
    "clientError",
    guarded("api", refuse, (_error, socket) => socket.destroy()),
  );
}

/** Counts sessions of HTTP/2 that break the protocol. */
function followHttp2(
  server: Http2Server | Http2SecureServer,
  refused: (reason: string) => void,
): void {
  const broken = (error: NodeJS.ErrnoException): void => {
    if (!isFarewell(error)) refused("http2");
  };
  server.on("sessionError", guarded("api", broken));
}

/**
 * Whether a session ended because its caller said so, by a GOAWAY with whatever code (Connect's own
 * client sends CANCEL after each use), or because its connection broke: nothing was refused or cut
 * then.
 */
const isFarewell = ({ code, syscall }: NodeJS.ErrnoException): boolean =>
  code === "ERR_HTTP2_SESSION_ERROR" || syscall !== undefined;
