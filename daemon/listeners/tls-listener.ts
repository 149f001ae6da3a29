import { readFileSync } from "node:fs";
import {
  createSecureServer,
  type Http2SecureServer,
  type SecureServerOptions,
  type ServerHttp2Session,
} from "node:http2";
import { createServer, type Server, type Socket } from "node:net";
import type { TLSSocket } from "node:tls";
import { systemClock } from "../../core/clock.ts";
import { performAsync } from "../../core/effect.ts";
import { PodnetError } from "../../core/errors.ts";
import { guarded } from "../../core/guard.ts";
import type { TcpConfig } from "../config/config.ts";
import type { ApiLimits } from "../config/limits.ts";
import { Handshakes } from "./handshakes.ts";
import type { Request, Response } from "./http.ts";

export interface TlsListenerOptions {
  readonly tcp: TcpConfig;
  readonly http: SecureServerOptions;
  readonly limits: Pick<ApiLimits, "handshakes" | "connectionsPerS" | "requestMs">;
  onRequest(request: Request, response: Response): void;
  /**
   * A caller whose certificate is verified, and the session on its connection if it speaks HTTP/2.
   */
  onConnection(socket: TLSSocket, session: ServerHttp2Session | undefined): void;
  refused(reason: string): void;
}

export interface TlsListener {
  readonly server: Http2SecureServer;
  /** Takes no new connection, ends what is idle and handshakes that are not finished. */
  close(): void;
}

/** Longest a handshake may take, milliseconds. */
const handshakeMs = 10_000;

/**
 * Listens on TCP: TLS 1.3 with a certificate on both sides, nothing else. A client without a
 * certificate that the authority signed, and that is valid now, fails the handshake. Throws
 * `CONFIG_INVALID`, `PREFLIGHT_FAILED`.
 */
export async function listenTls(options: TlsListenerOptions): Promise<TlsListener> {
  const { tcp, refused, limits } = options;
  const server = createSecureServer(
    {
      ...options.http,
      allowHTTP1: true,
      cert: read("tcp.cert", tcp.cert),
      key: read("tcp.key", tcp.key),
      ca: read("tcp.client_ca", tcp.clientCa),
      requestCert: true,
      rejectUnauthorized: true,
      minVersion: "TLSv1.3",
    },
    (request, response) => options.onRequest(request, response),
  );
  const ms = Math.min(handshakeMs, limits.requestMs);
  const handshakes = new Handshakes({ limits: { ...limits, ms }, clock: systemClock, refused });
  let newest: ServerHttp2Session | undefined;
  server.on("session", (session) => {
    newest = session;
  });
  const finish = (socket: TLSSocket): void => {
    // Made by the server's own listener, which has just run.
    const session = socket.alpnProtocol === "h2" ? newest : undefined;
    newest = undefined;
    if (handshakes.finish(socket)) options.onConnection(socket, session);
    else socket.destroy();
  };
  const end = (socket: Socket): void => void socket.destroy();
  server.on("secureConnection", guarded("api", finish, end));
  // The server that does TLS does not listen itself, so that a connection is counted before it
  // costs a handshake.
  const begin = (socket: Socket): void => {
    socket.on("error", () => socket.destroy());
    if (handshakes.begin(socket)) server.emit("connection", socket);
  };
  const listener = createServer({ noDelay: true }, guarded("api", begin, end));
  // One connection that cannot be accepted is not the end of the others.
  listener.on("error", () => refused("accept"));
  await performAsync("socket", "listen for the API on TCP", () => listening(listener, tcp)).catch(
    (cause: unknown) => {
      throw new PodnetError("PREFLIGHT_FAILED", `Cannot listen on ${tcp.host} port ${tcp.port}`, {
        field: "tcp.address",
        hint: "Use an address of this host and a free port",
        cause,
      });
    },
  );
  // Node's clocks for slow requests start with this, and end with close().
  server.emit("listening");
  return {
    server,
    close() {
      listener.close();
      handshakes.close();
      server.close();
    },
  };
}

function listening(server: Server, { host, port }: TcpConfig): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once("error", reject);
    server.listen(port, host, resolve);
  });
}

function read(key: string, path: string): Buffer {
  try {
    return readFileSync(path);
  } catch (cause) {
    throw new PodnetError("CONFIG_INVALID", `File "${path}" cannot be read`, {
      field: key,
      hint: "Check that it is there and its permissions",
      cause,
    });
  }
}
