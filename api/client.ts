import { statSync } from "node:fs";
import { Agent } from "node:http";
import { connect as netConnect, type Socket } from "node:net";
import type { DescMethod, DescService } from "@bufbuild/protobuf";
import {
  type Client,
  ConnectError,
  createClient,
  type Interceptor,
  type Transport,
} from "@connectrpc/connect";
import { createConnectTransport, Http2SessionManager } from "@connectrpc/connect-node";
import { isPodnetError, PodnetError } from "../core/errors.ts";
import { fromConnectError } from "./codes.ts";
import { ErrorInfoSchema } from "./gen/podnet/v1/error_pb.ts";
import { CniService } from "./gen/podnet/v1/cni_service_pb.ts";
import { ImageService } from "./gen/podnet/v1/image_service_pb.ts";
import { NetworkService } from "./gen/podnet/v1/network_service_pb.ts";
import { NodeService } from "./gen/podnet/v1/node_service_pb.ts";
import { OverlayService } from "./gen/podnet/v1/overlay_service_pb.ts";
import { PodService } from "./gen/podnet/v1/pod_service_pb.ts";
import { ServiceService } from "./gen/podnet/v1/service_service_pb.ts";
import { PolicyService } from "./gen/podnet/v1/policy_service_pb.ts";
import { traceHeader } from "./telemetry/trace-context.ts";
import { defaultSocket, openSocketPath } from "./socket-path.ts";

export interface ConnectOptions {
  /** Unix socket; default `PODNET_SOCKET`, then /run/podnet/podnet.sock. Not with `url`. */
  readonly socket?: string;
  /** `https://host:port` of a daemon that listens on TCP. */
  readonly url?: string;
  /** Who we are and whom we trust, PEM; with `url`. */
  readonly tls?: { readonly ca: string; readonly cert: string; readonly key: string };
  /**
   * Unary calls to a unix socket go over HTTP/1.1. Node loads HTTP/2 in 40 ms of a processor's
   * time, which the command `podnet` would spend for each single call. Streams go over HTTP/2.
   */
  readonly quickUnary?: boolean;
  /** The place in a trace that calls are a part of: a `traceparent` of W3C Trace Context. */
  readonly traceparent?: string;
  /** Deadline of each unary call, milliseconds, unless the call has one of its own. */
  readonly timeoutMs?: number;
}

/** Clients of all services over one connection. Every call throws `PodnetError`. */
export interface Podnet extends Disposable {
  readonly pods: Client<typeof PodService>;
  readonly networks: Client<typeof NetworkService>;
  readonly overlays: Client<typeof OverlayService>;
  readonly cni: Client<typeof CniService>;
  readonly policies: Client<typeof PolicyService>;
  readonly services: Client<typeof ServiceService>;
  readonly images: Client<typeof ImageService>;
  readonly node: Client<typeof NodeService>;
  /** The socket or URL in use. */
  readonly target: string;
  close(): void;
}

const hints: Readonly<Record<string, string>> = {
  ENOENT: "Start podnetd, or name its socket with --socket or PODNET_SOCKET",
  ECONNREFUSED: "podnetd has ended; start it again",
  EACCES: "Run as root or as a member of the group podnet",
  EPERM: "Run as root or as a member of the group podnet",
};

/** The first code of Node's in a chain of causes: `ECONNREFUSED`, `ERR_SSL_…`. */
function nodeCodeOf(thrown: unknown): string | undefined {
  for (let at: unknown = thrown; at instanceof Error; at = at.cause) {
    if ("code" in at && typeof at.code === "string") return at.code;
  }
  return undefined;
}

function hintFor(code: string | undefined, target: string): string {
  if (code === "ECONNREFUSED" && target.startsWith("/") && !isSocket(target))
    return "This is not a socket. podnetd's is /run/podnet/podnet.sock unless it is configured otherwise";

  if (code !== undefined && /SSL|TLS|CERT|SIGNATURE/.test(code)) {
    return "See whether the certificates of both ends are signed by the authority each trusts";
  }
  return hints[code ?? ""] ?? "See whether podnetd still runs, and its log";
}

/** Also when it cannot be looked at. */
function isSocket(path: string): boolean {
  try {
    return statSync(path).isSocket();
  } catch {
    return true;
  }
}

/**
 * Whether podnetd ended the connection for its caller's demands: Node says the code of the GOAWAY
 * in its message alone.
 */
function calmedDown(thrown: unknown): boolean {
  for (let at: unknown = thrown; at instanceof Error; at = at.cause) {
    const code = "code" in at ? at.code : undefined;
    if (code === "ERR_HTTP2_SESSION_ERROR" && /\bcode 11$/.test(at.message)) return true;
  }
  return false;
}

interface CallOptions {
  readonly signal?: AbortSignal;
}

function explain(thrown: unknown, target: string, options: CallOptions | undefined): PodnetError {
  const error = fromConnectError(thrown);
  const errno = error === thrown ? undefined : nodeCodeOf(thrown);
  // A connection that breaks looks like a cancelled call, but the caller did not cancel it.
  const lost =
    isPodnetError(error, "DAEMON_UNREACHABLE") ||
    (isPodnetError(error, "CANCELLED") && options?.signal?.aborted !== true) ||
    (isPodnetError(error, "INTERNAL") && errno !== undefined);
  const said = thrown instanceof ConnectError && thrown.findDetails(ErrorInfoSchema).length > 0;
  if (!lost || said) return error;
  if (calmedDown(thrown)) {
    return new PodnetError("LIMIT_REACHED", `podnetd refuses your connections at ${target}`, {
      hint: "Try again in a second, close connections, or raise limits.connections_per_s or limits.connections_per_caller",
      details: { target },
      cause: thrown,
    });
  }
  return new PodnetError("DAEMON_UNREACHABLE", `podnetd does not answer at ${target}`, {
    hint: hintFor(errno, target),
    details: { target, ...(errno === undefined ? { reason: error.message } : { errno }) },
    cause: thrown,
  });
}

type AnyCall = (request: unknown, options?: CallOptions) => unknown;
type Explain = (thrown: unknown) => PodnetError;

async function* typedStream(call: () => unknown, explained: Explain): AsyncGenerator {
  try {
    yield* call() as AsyncIterable<unknown>;
  } catch (thrown) {
    throw explained(thrown);
  }
}

async function typedUnary(call: () => unknown, explained: Explain): Promise<unknown> {
  try {
    return await call();
  } catch (thrown) {
    throw explained(thrown);
  }
}

/** A client whose calls throw `PodnetError`; Connect would wrap what an interceptor throws. */
function typedClient<S extends DescService>(
  service: S,
  transport: Transport,
  target: string,
): Client<S> {
  const plain = createClient(service, transport) as Readonly<Record<string, AnyCall>>;
  const typed = (method: DescMethod): AnyCall => {
    const call = plain[method.localName] as AnyCall;
    const streams =
      method.methodKind === "server_streaming" || method.methodKind === "bidi_streaming";
    return (request, options) =>
      (streams ? typedStream : typedUnary)(
        () => call(request, options),
        (thrown) => explain(thrown, target, options),
      );
  };
  return Object.fromEntries(service.methods.map((m) => [m.localName, typed(m)])) as Client<S>;
}

/** Connects to a unix socket of any length; its folder stays open until connect(2) has run. */
function connectSocket(socket: string): Socket {
  const opened = openSocketPath(socket);
  const connection = netConnect({ path: opened.path });
  const done = (): void => {
    connection.off("connect", done).off("close", done);
    opened[Symbol.dispose]();
  };
  return connection.once("connect", done).once("close", done);
}

const withHeader =
  (traceparent: string): Interceptor =>
  (next) =>
  (request) => {
    request.header.set(traceHeader, traceparent);
    return next(request);
  };

type TransportOptions = Parameters<typeof createConnectTransport>[0];
type SessionManager = NonNullable<
  Extract<TransportOptions, { readonly httpVersion: "2" }>["sessionManager"]
>;

/** Bytes that podnetd may send ahead of the reader of a stream, and of all streams together. */
const streamWindow = 256 * 1024;
const sessionWindow = 1024 * 1024;

/**
 * A manager whose sessions have larger windows than HTTP/2's 64 KiB. With these a program's output
 * would wait for the client at every second message.
 */
function widened(manager: Http2SessionManager): SessionManager {
  const known = new WeakSet<object>();
  return {
    authority: manager.authority,
    notifyResponseByteRead: (stream) => manager.notifyResponseByteRead(stream),
    async request(...call) {
      const stream = await manager.request(...call);
      const { session } = stream;
      if (session !== undefined && !known.has(session)) {
        known.add(session);
        session.setLocalWindowSize(sessionWindow);
      }
      return stream;
    },
  };
}

/** Most connections of one client for unary calls; further calls wait for a free one. */
const unaryConnections = 4;

/** Sends unary calls over HTTP/1.1, over connections that are kept between calls. */
function unaryTransport(
  socket: string,
  options: Omit<TransportOptions, "httpVersion" | "sessionManager">,
): { readonly unary: Transport["unary"]; close(): void } {
  let opened: { readonly agent: Agent; readonly transport: Transport } | undefined;
  const open = () => {
    const agent = new Agent({ keepAlive: true, maxSockets: unaryConnections });
    agent.createConnection = () => connectSocket(socket);
    const nodeOptions = { agent };
    const transport = createConnectTransport({ ...options, httpVersion: "1.1", nodeOptions });
    return { agent, transport };
  };
  return {
    unary: (...call) => (opened ??= open()).transport.unary(...call),
    close: () => opened?.agent.destroy(),
  };
}

/** Clients for the daemon; nothing is sent, and no connection made, before the first call. */
export function connectPodnet(options: ConnectOptions = {}): Podnet {
  // An empty variable is no socket's name.
  const socket = options.socket ?? (process.env["PODNET_SOCKET"] || defaultSocket);
  const target = options.url ?? socket;
  const baseUrl = options.url ?? "http://podnet";
  const sessionManager = new Http2SessionManager(
    baseUrl,
    {},
    {
      settings: { initialWindowSize: streamWindow },
      ...(options.url === undefined
        ? { createConnection: () => connectSocket(socket) }
        : options.tls),
    },
  );
  const common = {
    baseUrl,
    ...(options.timeoutMs === undefined ? {} : { defaultTimeoutMs: options.timeoutMs }),
    interceptors: options.traceparent === undefined ? [] : [withHeader(options.traceparent)],
  };
  const streams = createConnectTransport({
    ...common,
    httpVersion: "2",
    sessionManager: widened(sessionManager),
  });
  const quick =
    options.quickUnary === true && options.url === undefined
      ? unaryTransport(socket, common)
      : undefined;
  const transport =
    quick === undefined ? streams : { unary: quick.unary, stream: streams.stream.bind(streams) };
  const close = (): void => {
    quick?.close();
    sessionManager.abort();
  };
  return {
    pods: typedClient(PodService, transport, target),
    networks: typedClient(NetworkService, transport, target),
    overlays: typedClient(OverlayService, transport, target),
    cni: typedClient(CniService, transport, target),
    policies: typedClient(PolicyService, transport, target),
    services: typedClient(ServiceService, transport, target),
    images: typedClient(ImageService, transport, target),
    node: typedClient(NodeService, transport, target),
    target,
    close,
    [Symbol.dispose]: close,
  };
}
