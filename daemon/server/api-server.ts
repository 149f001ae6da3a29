import { readFileSync } from "node:fs";
import { createServer as createHttp1, type IncomingMessage, type ServerResponse } from "node:http";
import {
  createSecureServer,
  createServer as createHttp2,
  type Http2SecureServer,
  type Http2ServerRequest,
  type Http2ServerResponse,
  type ServerHttp2Session,
} from "node:http2";
import type { Socket } from "node:net";
import { TLSSocket } from "node:tls";
import { type ConnectRouter, createContextValues } from "@connectrpc/connect";
import { connectNodeAdapter } from "@connectrpc/connect-node";
import { PodnetError } from "../../core/errors.ts";
import { descriptorOf, peerCredentials } from "../../linux/unix-socket.ts";
import type { TcpConfig } from "../config/config.ts";
import { answeredKey } from "./answered.ts";
import { type Peer, peerKey } from "./peer.ts";
import { listenUnix, type UnixListenerOptions } from "./unix-listener.ts";

type Request = IncomingMessage | Http2ServerRequest;
type Response = ServerResponse | Http2ServerResponse;
type Handler = (request: Request, response: Response) => void;

export interface ApiServerOptions {
  readonly unix: UnixListenerOptions;
  readonly tcp: TcpConfig | undefined;
  routes(router: ConnectRouter): void;
  /** What `GET /metrics` answers, in Prometheus' text format. */
  metrics(): Promise<{ readonly type: string; readonly text: string }>;
}

/** gRPC, gRPC-Web and JSON on one socket: which of them is told by the first bytes. */
export interface ApiServer {
  /** Takes no new connection, ends streams, and waits for answers under way up to `graceMs`. */
  close(graceMs: number): Promise<void>;
}

/** Starts of a connection: HTTP/2 begins with this preface (RFC 9113 3.4), HTTP/1.1 with another method. */
const http2Preface = "PRI * HTTP/2.0";

export async function serveApi(options: ApiServerOptions): Promise<ApiServer> {
  const ending = new AbortController();
  const peers = new WeakMap<object, Peer>();
  const handler = requestHandler(options, peers, ending.signal);
  const http1 = createHttp1(handler);
  const http2 = createHttp2({}, handler);
  const sockets = new Set<Socket>();
  let arriving: Peer = { kind: "unknown" };
  // Emitted while the connection is handed over below, which is the one moment both ends of it are known.
  http2.on("session", (session: ServerHttp2Session) => {
    peers.set(session, arriving);
  });

  const accept = (socket: Socket): void => {
    sockets.add(socket);
    socket.once("close", () => sockets.delete(socket));
    socket.on("error", () => socket.destroy());
    const peer = unixPeer(socket);
    peers.set(socket, peer);
    sniff(socket, (isHttp2) => {
      arriving = peer;
      (isHttp2 ? http2 : http1).emit("connection", socket);
    });
  };
  const tcp =
    options.tcp === undefined ? undefined : await listenTcp(options.tcp, handler, sockets);
  const unix = await listenUnix(options.unix, accept).catch((thrown: unknown) => {
    tcp?.close();
    throw thrown;
  });

  return {
    async close(graceMs) {
      unix.close();
      tcp?.close();
      ending.abort(
        new PodnetError("DAEMON_UNREACHABLE", "podnetd ends", {
          hint: "Try again when it runs again",
        }),
      );
      // Both let answers under way be sent, and end what is idle; neither listens itself.
      http2.close();
      http1.close();
      await drained(sockets, graceMs);
      for (const socket of sockets) socket.destroy();
    },
  };
}

function unixPeer(socket: Socket): Peer {
  const fd = descriptorOf(socket);
  return fd === undefined ? { kind: "unknown" } : { kind: "unix", ...peerCredentials(fd) };
}

/** Longest a connection may say nothing before it is known what it speaks, milliseconds. */
const silenceMs = 30_000;

/** Reads as much as tells the protocol, puts it back, and hands the connection on. */
function sniff(socket: Socket, decide: (http2: boolean) => void): void {
  let head = Buffer.alloc(0);
  const give = (): unknown => socket.destroy();
  socket.setTimeout(silenceMs, give);
  const onReadable = (): void => {
    for (;;) {
      const chunk = socket.read() as Buffer | null;
      if (chunk === null) return;
      head = Buffer.concat([head, chunk]);
      const start = head.subarray(0, http2Preface.length).toString("latin1");
      if (start !== http2Preface && http2Preface.startsWith(start)) continue;
      socket.off("readable", onReadable);
      socket.off("timeout", give);
      socket.setTimeout(0);
      socket.unshift(head);
      decide(start === http2Preface);
      return;
    }
  };
  socket.on("readable", onReadable);
}

function requestHandler(
  options: ApiServerOptions,
  peers: WeakMap<object, Peer>,
  ending: AbortSignal,
): Handler {
  const peerOf = (request: Request): Peer => {
    const session = "stream" in request ? request.stream.session : undefined;
    const { socket } = request;
    if (socket instanceof TLSSocket) {
      return { kind: "tls", name: String(socket.getPeerCertificate().subject?.CN ?? "") };
    }
    return peers.get(session ?? socket) ?? { kind: "unknown" };
  };
  const closed = new WeakMap<Request, Promise<void>>();
  const connect = connectNodeAdapter({
    routes: (router) => options.routes(router),
    shutdownSignal: ending,
    contextValues: (request) =>
      createContextValues()
        .set(peerKey, peerOf(request))
        .set(answeredKey, (then) => void closed.get(request)?.then(then)),
  });
  return (request, response) => {
    closed.set(
      request,
      new Promise((resolve) => (response as ServerResponse).once("close", resolve)),
    );
    if (request.url === "/metrics" && request.method === "GET") void sendMetrics(options, response);
    else connect(request, response);
  };
}

async function sendMetrics(options: ApiServerOptions, to: Response): Promise<void> {
  // HTTP/2's response has the same methods with signatures of its own.
  const response = to as ServerResponse;
  try {
    const { type, text } = await options.metrics();
    response.writeHead(200, { "content-type": type });
    response.end(text);
  } catch {
    response.writeHead(500);
    response.end();
  }
}

/** The same over TCP: TLS with a certificate on both sides, nothing else. */
async function listenTcp(
  tcp: TcpConfig,
  handler: Handler,
  sockets: Set<Socket>,
): Promise<Http2SecureServer> {
  const read = (key: string, path: string): Buffer => {
    try {
      return readFileSync(path);
    } catch (cause) {
      throw new PodnetError("CONFIG_INVALID", `File "${path}" cannot be read`, {
        field: key,
        hint: "Check that it is there and its permissions",
        cause,
      });
    }
  };
  const server = createSecureServer(
    {
      allowHTTP1: true,
      cert: read("tcp.cert", tcp.cert),
      key: read("tcp.key", tcp.key),
      ca: read("tcp.client_ca", tcp.clientCa),
      requestCert: true,
      rejectUnauthorized: true,
      minVersion: "TLSv1.3",
    },
    handler,
  );
  server.on("secureConnection", (socket) => {
    sockets.add(socket);
    socket.once("close", () => sockets.delete(socket));
  });
  await new Promise<void>((resolve, reject) => {
    server.once("error", reject);
    server.listen(tcp.port, tcp.host, resolve);
  }).catch((cause: unknown) => {
    throw new PodnetError("PREFLIGHT_FAILED", `Cannot listen on ${tcp.host} port ${tcp.port}`, {
      field: "tcp.address",
      hint: "Use an address of this host and a free port",
      cause,
    });
  });
  return server;
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
