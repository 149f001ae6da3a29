import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { Socket } from "node:net";
import { PodnetError } from "../../../core/errors.ts";
import { guarded } from "../../../core/guard.ts";
import { renderError } from "../../../cni/protocol/error.ts";
import {
  bodyLimit,
  exchangePath,
  openshiftPath,
  renderOutcome,
} from "../../../cni/protocol/exchange.ts";
import type { AccessConfig } from "../../config/access.ts";
import type { ApiLimits } from "../../config/limits.ts";
import { roleOf } from "../../listeners/access.ts";
import { unixPeer } from "../../listeners/peer.ts";
import { listenUnix } from "../../listeners/unix-listener.ts";
import { answerExchange, type Exchanging } from "./answer-exchange.ts";
import { readBody } from "./read-body.ts";

export interface CniServerOptions extends Exchanging {
  readonly path: string;
  readonly access: AccessConfig;
  readonly limits: Pick<ApiLimits, "connections" | "requestMs" | "stallMs">;
  /** Runs once the socket exists; requests are answered when it is over. Never rejects. */
  carryOutPending(): Promise<void>;
  /** Notified of everything refused or cut, by a reason from a small set. */
  refused(reason: string): void;
}

export interface CniServer {
  /** Takes no new connection, and waits for answers under way up to `graceMs`. */
  close(graceMs: number): Promise<void>;
}

/** Most bytes of headers in a request; plugins send a hundred. */
const headerBytes = 8192;

/**
 * Serves plugins of container runtimes, on a unix socket for administrators of podnetd alone: one
 * request by connection. Throws `ALREADY_RUNNING`, `PREFLIGHT_FAILED`.
 */
export async function serveCni(options: CniServerOptions): Promise<CniServer> {
  const { limits, access, refused, path } = options;
  const sockets = new Set<Socket>();
  // (Node's own limits of time are looked at by servers that listen themselves alone.)
  const heads = new WeakMap<Socket, NodeJS.Timeout>();
  const ready = Promise.withResolvers<void>();
  const take = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    clearTimeout(heads.get(request.socket));
    await ready.promise;
    await answer(request, response, options);
  };
  const http = createServer(
    {
      maxHeaderSize: headerBytes,
      keepAlive: false,
    },
    guarded("cni", take, (_request, response) => response.destroy()),
  );
  http.on("clientError", (_error, socket) => {
    refused("cni_bad_request");
    socket.destroy();
  });
  const accept = (socket: Socket): void => {
    socket.on("error", () => socket.destroy());
    if (sockets.size >= limits.connections) {
      refused("cni_connections");
      turnAway(socket);
      return;
    }
    // A file that others may not open keeps them away already; a descriptor handed on does not.
    if (roleOf(unixPeer(socket), access) !== "admin") {
      refused("cni_permission_denied");
      socket.destroy();
      return;
    }
    sockets.add(socket);
    const late = setTimeout(
      guarded("cni", () => {
        refused("cni_slow");
        socket.destroy();
      }),
      limits.requestMs,
    );
    heads.set(socket, late);
    socket.once("close", () => {
      clearTimeout(late);
      sockets.delete(socket);
    });
    http.emit("connection", socket);
  };
  const unix = await listenUnix(
    { path, group: undefined, mode: 0o600, of: "CNI" },
    guarded("cni", accept, (socket) => socket.destroy()),
  );
  await options.carryOutPending();
  ready.resolve();
  return {
    async close(graceMs) {
      unix.close();
      const limit = setTimeout(() => sockets.forEach((socket) => socket.destroy()), graceMs);
      http.close();
      http.closeIdleConnections();
      await Promise.all(
        [...sockets].map((socket) => new Promise((done) => socket.once("close", done))),
      );
      clearTimeout(limit);
      http.closeAllConnections();
    },
  };
}

const busy = "podnetd has as many requests under way as it takes\n";

/**
 * Says that there is no room, and is done with it: nothing of the request is read, and nothing is
 * kept of who asks.
 */
function turnAway(socket: Socket): void {
  const head = `HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Type: text/plain\r\nContent-Length: ${busy.length}`;
  socket.end(`${head}\r\n\r\n${busy}`, () => socket.destroy());
}

async function answer(
  request: IncomingMessage,
  response: ServerResponse,
  options: CniServerOptions,
): Promise<void> {
  const { limits, refused } = options;
  const gone = new AbortController();
  response.on("error", () => {});
  response.once("close", () => {
    // A runtime that stopped waiting would never take back what ADD made, so its request is
    // cancelled.
    if (!response.writableFinished)
      gone.abort(new PodnetError("CANCELLED", "The runtime did not wait for the answer"));
  });
  response.setHeader("connection", "close");
  const path = request.url ?? "";
  const openshift = path === openshiftPath;
  if (request.method !== "POST" || !(openshift || path === exchangePath)) {
    refused("cni_bad_request");
    send(response, limits.stallMs, 404, "text/plain", "There is no such method\n");
    return;
  }
  const body = await readBody(request, bodyLimit, limits.requestMs);
  if (body === undefined) {
    refused("cni_bad_request");
    const error = tooLarge();
    if (openshift) send(response, limits.stallMs, 400, "text/plain", `${error.message}\n`);
    else send(response, limits.stallMs, 413, json, renderOutcome(failed(error)));
    return;
  }
  const answered = await answerExchange(body, options, gone.signal);
  const { stdout } = answered;
  if (!openshift)
    send(response, limits.stallMs, 200, json, renderOutcome({ exit: answered.ok ? 0 : 1, stdout }));
  else if (answered.ok) send(response, limits.stallMs, 200, json, stdout);
  else send(response, limits.stallMs, 400, "text/plain", `${answered.error.message}\n`);
}

const json = "application/json";

const failed = (error: PodnetError) => ({ exit: 1, stdout: renderError(error) });

const tooLarge = (): PodnetError =>
  new PodnetError("LIMIT_REACHED", `The request has more than ${bodyLimit} bytes`, {
    hint: "Send a smaller network configuration",
    details: { limit: bodyLimit, cni: 6 },
  });

/** Sends an answer to who takes it in time. */
function send(
  response: ServerResponse,
  stallMs: number,
  status: number,
  type: string,
  text: string,
): void {
  response.setTimeout(stallMs, () => response.destroy());
  response.writeHead(status, { "content-type": type, "content-length": Buffer.byteLength(text) });
  response.end(text);
}
