import { readFileSync } from "node:fs";
import { createSecureServer, type Http2SecureServer, type SecureServerOptions } from "node:http2";
import type { TLSSocket } from "node:tls";
import { crossAsync } from "../../core/crossing.ts";
import { PodnetError } from "../../core/errors.ts";
import type { TcpConfig } from "../config/config.ts";
import type { Request, Response } from "./request-handler.ts";

export interface TlsListenerOptions {
  readonly tcp: TcpConfig;
  readonly http: SecureServerOptions;
  readonly connections: number;
  onRequest(request: Request, response: Response): void;
  /** A caller whose certificate is verified. */
  onConnection(socket: TLSSocket): void;
  refused(reason: string): void;
}

/** Longest a handshake may take, milliseconds. */
const handshakeMs = 10_000;

/**
 * Listens on TCP: TLS 1.3 with a certificate on both sides, nothing else. Who has none that the authority signed, or
 * one that is not valid now, gets no further than the handshake. Throws `CONFIG_INVALID`, `PREFLIGHT_FAILED`.
 */
export async function listenTls(options: TlsListenerOptions): Promise<Http2SecureServer> {
  const { tcp, refused } = options;
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
      handshakeTimeout: handshakeMs,
    },
    (request, response) => options.onRequest(request, response),
  );
  server.maxConnections = options.connections;
  server.on("drop", () => refused("connections"));
  server.on("tlsClientError", () => refused("tls"));
  server.on("secureConnection", (socket) => options.onConnection(socket));
  await crossAsync("socket", "listen for the API on TCP", () => listening(server, tcp)).catch(
    (cause: unknown) => {
      throw new PodnetError("PREFLIGHT_FAILED", `Cannot listen on ${tcp.host} port ${tcp.port}`, {
        field: "tcp.address",
        hint: "Use an address of this host and a free port",
        cause,
      });
    },
  );
  return server;
}

function listening(server: Http2SecureServer, { host, port }: TcpConfig): Promise<void> {
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
