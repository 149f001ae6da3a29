import * as http from "node:http";
import { connect, type AddressInfo } from "node:net";
import type { Duplex } from "node:stream";

/** What a kubelet would be asked for, by the pod's subresource and the query of the request. */
export type StreamUrl = (
  what: "exec" | "attach" | "portforward",
  query: URLSearchParams,
) => string | Promise<string>;

const pod = {
  kind: "Pod",
  apiVersion: "v1",
  metadata: { name: "web", namespace: "default", uid: "u-1" },
  spec: {
    nodeName: "node",
    containers: [{ name: "app", image: "app:1", stdin: true, tty: false }],
  },
  status: {
    phase: "Running",
    containerStatuses: [{ name: "app", ready: true, state: { running: {} } }],
  },
};

const answers: Readonly<Record<string, object>> = {
  "/api": { kind: "APIVersions", versions: ["v1"] },
  "/apis": { kind: "APIGroupList", apiVersion: "v1", groups: [] },
  "/api/v1": {
    kind: "APIResourceList",
    groupVersion: "v1",
    resources: [
      { name: "pods", namespaced: true, kind: "Pod", verbs: ["get", "list"], shortNames: ["po"] },
    ],
  },
  "/api/v1/namespaces/default/pods/web": pod,
};

/**
 * An API server of Kubernetes with one pod, played, and its kubelet: a client's connection for
 * `exec`, `attach` and `portforward` is led to a runtime's URL byte by byte, as both do it.
 */
export class PodsApi implements AsyncDisposable {
  readonly #server: http.Server;

  private constructor(server: http.Server) {
    this.#server = server;
  }

  static async open(urlOf: StreamUrl): Promise<PodsApi> {
    const server = http.createServer((request, response) => {
      const { pathname } = new URL(request.url ?? "", "http://x");
      const answer = answers[pathname];
      response.writeHead(answer === undefined ? 404 : 200, { "Content-Type": "application/json" });
      response.end(JSON.stringify(answer ?? { kind: "Status", status: "Failure", code: 404 }));
    });
    server.on("upgrade", (request: http.IncomingMessage, socket: Duplex, head: Buffer) => {
      socket.on("error", () => {});
      void lead(request, socket, head, urlOf);
    });
    await new Promise<void>((resolve) => void server.listen(0, "127.0.0.1", resolve));
    return new PodsApi(server);
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise<void>((resolve) => void this.#server.close(() => resolve()));
  }
}

async function lead(
  request: http.IncomingMessage,
  socket: Duplex,
  head: Buffer,
  urlOf: StreamUrl,
): Promise<void> {
  const { pathname, searchParams } = new URL(request.url ?? "", "http://x");
  const [, what] = /\/pods\/web\/(exec|attach|portforward)$/.exec(pathname) ?? [];
  if (what === undefined) return void socket.end("HTTP/1.1 404 Not Found\r\n\r\n");
  const to = new URL(await urlOf(what as "exec", searchParams));
  const upstream = connect({ host: to.hostname, port: Number(to.port), allowHalfOpen: true });
  upstream.on("error", () => socket.destroy());
  const headers: string[] = [];
  for (let i = 0; i < request.rawHeaders.length; i += 2)
    headers.push(`${request.rawHeaders[i]}: ${request.rawHeaders[i + 1]}`);
  upstream.write([`${request.method} ${to.pathname} HTTP/1.1`, ...headers, "", ""].join("\r\n"));
  upstream.write(head);
  upstream.pipe(socket);
  socket.pipe(upstream);
  for (const [one, other] of [
    [socket, upstream],
    [upstream, socket],
  ] as const)
    one.on("close", () => other.destroy());
}
