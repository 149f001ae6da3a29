import { createHash } from "node:crypto";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import type { Duplex } from "node:stream";
import { perform } from "../../../core/effect.ts";
import { PodnetError } from "../../../core/errors.ts";
import { guard, guarded } from "../../../core/guard.ts";
import { commandChannelCount, spdyChannels, webSocketChannels } from "./command-channels.ts";
import { type ConnectPort, forwardSpdy, forwardWebSocket } from "./port-forward.ts";
import { type StreamedProgram, streamCommand, type WantedStreams } from "./remote-command.ts";
import { SpdyConnection } from "./spdy-connection.ts";
import { Tokens } from "./tokens.ts";
import { type ChannelStyle, WebSocketConnection } from "./websocket-connection.ts";

/** What a URL stands for. */
export type StreamRequest =
  | {
      readonly kind: "exec" | "attach";
      readonly wanted: WantedStreams;
      readonly start: (gone: AbortSignal) => Promise<StreamedProgram>;
    }
  | {
      readonly kind: "portforward";
      /** For clients that cannot name a port for each stream. */
      readonly ports: readonly number[];
      readonly connect: ConnectPort;
    };

interface Connecting {
  readonly request: IncomingMessage;
  readonly socket: Duplex;
  readonly head: Buffer;
}

/** Protocols of programs and of ports that are spoken, the best first. */
const spdyProtocols = {
  command: ["v4.channel.k8s.io"],
  ports: ["portforward.k8s.io"],
} as const;
const styles: Readonly<Record<string, ChannelStyle>> = {
  "v5.channel.k8s.io": { base64: false, closes: true },
  "v4.channel.k8s.io": { base64: false, closes: false },
  "v4.base64.channel.k8s.io": { base64: true, closes: false },
};
const webSocketKey = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/** Connections at a time. */
const mostConnections = 256;
/** How long a request may take to come, milliseconds. */
const requestMs = 10_000;

/**
 * Where kubelet brings its clients for `Exec`, `Attach` and `PortForward`: each call answers a URL
 * here, whose token is good once. Whoever has the URL is let in.
 */
export class StreamingServer implements AsyncDisposable {
  readonly #server: Server;
  readonly #tokens = new Tokens<StreamRequest>(() => performance.now());
  readonly #open = new Set<Duplex>();

  private constructor(server: Server) {
    this.#server = server;
    server.on(
      "upgrade",
      guarded("api", (request: IncomingMessage, socket: Duplex, head: Buffer) => {
        this.#open.add(socket);
        socket.on("close", () => this.#open.delete(socket));
        // The streams notice it by the socket's end.
        socket.on("error", () => {});
        void guard("api", () => this.#serve({ request, socket, head }));
      }),
    );
  }

  /** Port 0 means one that is free. Throws `ADDRESS_IN_USE`. */
  static async open(address: string, port: number): Promise<StreamingServer> {
    const server = createServer(
      { requestTimeout: requestMs, headersTimeout: requestMs, maxHeaderSize: 16 * 1024 },
      guarded("api", (_request: IncomingMessage, response: ServerResponse) => {
        response.writeHead(400, { "Content-Type": "text/plain", Connection: "close" });
        response.end("A stream is asked for by an upgrade to SPDY/3.1 or websocket\n");
      }),
    );
    server.maxConnections = mostConnections;
    await listening(server, address, port);
    return new StreamingServer(server);
  }

  /** The URL of a stream, for one use within a minute. Throws `LIMIT_REACHED`. */
  urlFor(request: StreamRequest): string {
    const { address, port, family } = this.#server.address() as AddressInfo;
    const host = family === "IPv6" ? `[${address}]` : address;
    return `http://${host}:${port}/${request.kind}/${this.#tokens.give(request)}`;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const closed = new Promise<void>((resolve) => this.#server.close(() => resolve()));
    this.#server.closeAllConnections();
    for (const socket of this.#open) socket.destroy();
    await closed;
  }

  async #serve({ request, socket, head }: Connecting): Promise<void> {
    const [, kind, token = ""] = /^\/([a-z]+)\/([\w-]{1,64})$/.exec(pathOf(request)) ?? [];
    const asked = this.#tokens.take(token);
    if (asked === undefined || asked.kind !== kind)
      return refuse(socket, "404 Not Found", "There is no such stream, or it was opened before");
    const upgrade = request.headers.upgrade?.toLowerCase();
    if (upgrade === "spdy/3.1") return serveSpdy({ request, socket, head }, asked);
    if (upgrade === "websocket") return serveWebSocket({ request, socket, head }, asked);
    refuse(socket, "400 Bad Request", "Upgrade to SPDY/3.1 or websocket");
  }
}

const pathOf = ({ url = "" }: IncomingMessage): string => url.split("?")[0] ?? "";

async function serveSpdy({ request, socket, head }: Connecting, asked: StreamRequest) {
  const spoken = asked.kind === "portforward" ? spdyProtocols.ports : spdyProtocols.command;
  const offered = listOf(request, "x-stream-protocol-version");
  const protocol = spoken.find((each) => offered.includes(each));
  if (protocol === undefined) {
    const header = `X-Accepted-Stream-Protocol-Versions: ${spoken.join(", ")}`;
    return refuse(socket, "403 Forbidden", `podnetd speaks ${spoken.join(", ")}`, [header]);
  }
  accept(socket, ["Upgrade: SPDY/3.1", `X-Stream-Protocol-Version: ${protocol}`]);
  const connection = new SpdyConnection(socket, head);
  if (asked.kind === "portforward") return forwardSpdy(connection, asked.connect);
  const channels = await spdyChannels(connection, asked.wanted).catch(() => undefined);
  // There is nowhere to say why.
  if (channels === undefined) connection.close();
  else await streamCommand(connection, channels, asked.start);
}

async function serveWebSocket({ request, socket, head }: Connecting, asked: StreamRequest) {
  const key = request.headers["sec-websocket-key"] ?? "";
  if (request.method !== "GET" || request.headers["sec-websocket-version"] !== "13" || key === "")
    return refuse(socket, "400 Bad Request", "The handshake is not that of WebSocket 13", [
      "Sec-WebSocket-Version: 13",
    ]);
  const offered = listOf(request, "sec-websocket-protocol");
  const protocol = Object.keys(styles).find((each) => offered.includes(each));
  const style = styles[protocol ?? ""];
  if (style === undefined)
    return refuse(socket, "400 Bad Request", `podnetd speaks ${Object.keys(styles).join(", ")}`);
  accept(socket, [
    "Upgrade: websocket",
    `Sec-WebSocket-Accept: ${createHash("sha1")
      .update(key + webSocketKey)
      .digest("base64")}`,
    `Sec-WebSocket-Protocol: ${protocol}`,
  ]);
  const isPorts = asked.kind === "portforward";
  const count = isPorts ? 2 * asked.ports.length : commandChannelCount;
  const connection = new WebSocketConnection(socket, head, count, style);
  if (isPorts) return forwardWebSocket(connection, asked.ports, asked.connect);
  const channels = await webSocketChannels(connection, asked.wanted);
  await streamCommand(connection, channels, asked.start);
}

const accept = (socket: Duplex, headers: readonly string[]): void =>
  void socket.write(
    ["HTTP/1.1 101 Switching Protocols", "Connection: Upgrade", ...headers, "", ""].join("\r\n"),
  );

function refuse(
  socket: Duplex,
  status: string,
  why: string,
  headers: readonly string[] = [],
): void {
  const body = `${why}\n`;
  const lines = ["Content-Type: text/plain", `Content-Length: ${Buffer.byteLength(body)}`];
  socket.end(
    [`HTTP/1.1 ${status}`, ...lines, "Connection: close", ...headers, "", body].join("\r\n"),
  );
  socket.resume();
  const timer = setTimeout(() => socket.destroy(), requestMs).unref();
  socket.once("close", () => clearTimeout(timer));
}

/** A header that may come several times, and have several values. */
const listOf = ({ headersDistinct }: IncomingMessage, name: string): string[] =>
  (headersDistinct[name] ?? []).flatMap((line) => line.split(",").map((each) => each.trim()));

function listening(server: Server, address: string, port: number): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once("error", (cause: NodeJS.ErrnoException) =>
      reject(
        new PodnetError(
          cause.code === "EADDRINUSE" ? "ADDRESS_IN_USE" : "SYSCALL_FAILED",
          `Streams cannot be served on ${address} port ${port}: ${cause.message}`,
          { field: "cri.stream_address", hint: "Choose another address of this host", cause },
        ),
      ),
    );
    perform("socket", "listen for streams", () => server.listen({ host: address, port }, resolve));
  });
}
