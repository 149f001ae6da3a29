import * as http from "node:http";
import * as https from "node:https";
import type { AddressInfo, Socket } from "node:net";
import { type NodePart, Nodes, Refused } from "./nodes.ts";

/** What a token may do, and until when. */
export interface Account {
  readonly user: string;
  /** Wall clock, milliseconds; absent: without end. */
  expiresAt?: number;
  /** Such as `get nodes`, `patch nodes/status`; `*`: everything. */
  readonly rights: readonly string[];
}

export const allRights = ["get nodes", "list nodes", "watch nodes", "patch nodes/status"] as const;

export interface Options {
  /** Absent: HTTP without TLS. */
  readonly tls?: { readonly key: string; readonly cert: string; readonly ca?: string };
  readonly address?: string;
  readonly port?: number;
  /** How many bytes a watch sends at a time: a line is cut anywhere. */
  readonly chunk?: (left: number) => number;
  /** The time between bookmarks, milliseconds. A server's is a minute. */
  readonly bookmarkMs?: number;
  /** The accounts by their tokens, read for each request; the server's own `accounts` otherwise. */
  readonly accounts?: () => ReadonlyMap<string, Account>;
}

type Verb = "list" | "watch" | "get" | "patch" | "create" | "delete";

const known: Readonly<Record<Verb, readonly string[]>> = {
  list: ["limit", "continue", "resourceVersion", "fieldSelector"],
  watch: ["watch", "resourceVersion", "allowWatchBookmarks", "timeoutSeconds"],
  get: [],
  patch: ["fieldManager", "fieldValidation"],
  create: ["fieldManager", "fieldValidation"],
  delete: [],
};

const patchTypes = ["application/strategic-merge-patch+json", "application/merge-patch+json"];

/**
 * An API server of Kubernetes, played: none can be installed here. It is written from Kubernetes'
 * published API (its OpenAPI, and its documents on API concepts) by the author of podnet's client;
 * Debian's kubectl works with it, too (`test/lab/kube.ts`). It knows Nodes alone, and is stricter
 * than a server: unknown fields and query parameters are refused. Lists have pages, watches are cut
 * into chunks anywhere and go on from a version, what is older than the last compaction is 410, a
 * write under a condition that does not hold is 409, and tokens expire.
 */
export class KubeApiServer implements AsyncDisposable {
  readonly nodes = new Nodes();
  readonly accounts = new Map<string, Account>();
  /** What was asked, such as `GET /api/v1/nodes?limit=250`. */
  readonly asked: string[] = [];
  readonly #server: http.Server;
  readonly #options: Options;
  readonly #sockets = new Set<Socket>();
  readonly #watches = new Set<http.ServerResponse>();
  /** An answer to be given instead, to the next request. */
  #next: { code: number; body: string; headers: Record<string, string> } | undefined;
  /** Called when a request has been answered. */
  onAnswered: (asked: string) => void = () => {};
  /** 410 as a status of the answer, or as an event in a watch that has begun. */
  expiredAs: "status" | "event" = "event";

  private constructor(options: Options) {
    this.#options = options;
    const handler: http.RequestListener = (request, response) => {
      void this.#handle(request, response);
    };
    this.#server =
      options.tls === undefined
        ? http.createServer(handler)
        : https.createServer(
            { ...options.tls, requestCert: options.tls.ca !== undefined },
            handler,
          );
    this.#server.on("connection", (socket) => {
      this.#sockets.add(socket);
      socket.on("close", () => this.#sockets.delete(socket));
    });
    this.accounts.set("token-1", { user: "podnetd", rights: allRights });
  }

  static async open(options: Options = {}): Promise<KubeApiServer> {
    const server = new KubeApiServer(options);
    const { address = "127.0.0.1", port = 0 } = options;
    await new Promise<void>((resolve) => server.#server.listen(port, address, resolve));
    return server;
  }

  get url(): string {
    const { address, port } = this.#server.address() as AddressInfo;
    return `${this.#options.tls === undefined ? "http" : "https"}://${address}:${port}`;
  }

  /** Watches that are open. */
  get watching(): number {
    return this.#watches.size;
  }

  /** Ends every connection in the middle of whatever is sent. */
  cut(): void {
    for (const socket of this.#sockets) socket.destroy();
  }

  /** Ends every watch in good order. */
  endWatches(): void {
    for (const watch of this.#watches) watch.end();
  }

  /** Sends bytes in every watch as they are. */
  say(text: string): void {
    for (const watch of this.#watches) watch.write(text);
  }

  /** Answers the next request with this. */
  answerNext(code: number, body: string, headers: Record<string, string> = {}): void {
    this.#next = { code, body, headers };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.cut();
    await new Promise<void>((resolve) => this.#server.close(() => resolve()));
  }

  async #handle(request: http.IncomingMessage, response: http.ServerResponse): Promise<void> {
    try {
      this.asked.push(`${request.method} ${request.url}`);
      const next = this.#next;
      this.#next = undefined;
      if (next !== undefined) {
        response.writeHead(next.code, next.headers).end(next.body);
        return;
      }
      const pieces: Buffer[] = [];
      for await (const piece of request as AsyncIterable<Buffer>) pieces.push(piece);
      this.#route(request, response, Buffer.concat(pieces).toString());
      this.onAnswered(`${request.method} ${request.url}`);
    } catch (thrown) {
      if (!(thrown instanceof Refused)) {
        response.destroy();
        return;
      }
      const { code, reason, message } = thrown;
      answer(response, code, statusOf(code, reason, message));
    }
  }

  #route(request: http.IncomingMessage, response: http.ServerResponse, body: string): void {
    const url = new URL(request.url ?? "", "http://server");
    if (!/application\/json|\*\/\*/.test(request.headers.accept ?? ""))
      throw new Refused(406, "NotAcceptable", "only application/json is served");
    const discovered = discovery[url.pathname];
    if (discovered !== undefined) return answer(response, 200, discovered);
    const [, name, subresource] =
      /^\/api\/v1\/nodes(?:\/([^/]+)(?:\/(status))?)?$/.exec(url.pathname) ?? fail404(url.pathname);
    const verb = verbOf(request.method ?? "", name, url.searchParams.get("watch") === "true");
    this.#authorize(request, verb, subresource === undefined ? "nodes" : `nodes/${subresource}`);
    for (const key of url.searchParams.keys())
      if (!known[verb].includes(key))
        throw new Refused(400, "BadRequest", `unknown query parameter "${key}"`);
    if (verb === "watch") return this.#watch(url.searchParams, response);
    if (verb === "list") return answer(response, 200, this.#list(url.searchParams));
    if (verb === "create") {
      const made = parsed(body);
      return answer(response, 201, this.nodes.create(made.metadata?.name ?? "", made));
    }
    const node = decodeURIComponent(name as string);
    const found = this.nodes.get(node);
    if (found === undefined) throw new Refused(404, "NotFound", `nodes "${node}" not found`);
    if (verb === "delete") this.nodes.delete(node);
    if (verb !== "patch") return answer(response, 200, found);
    const type = request.headers["content-type"] ?? "";
    if (!patchTypes.includes(type))
      throw new Refused(415, "UnsupportedMediaType", `the body is ${type}`);
    const patched = this.nodes.patch(node, parsed(body), subresource as "status" | undefined);
    answer(response, 200, patched);
  }

  #authorize(request: http.IncomingMessage, verb: string, resource: string): void {
    const [, token = ""] = /^Bearer (.+)$/.exec(request.headers.authorization ?? "") ?? [];
    const account = (this.#options.accounts?.() ?? this.accounts).get(token);
    const { expiresAt = Infinity, rights = [], user = "" } = account ?? {};
    if (account === undefined || expiresAt <= Date.now())
      throw new Refused(401, "Unauthorized", "Unauthorized");
    if (!rights.includes(`${verb} ${resource}`) && !rights.includes("*"))
      throw new Refused(
        403,
        "Forbidden",
        `nodes is forbidden: User "${user}" cannot ${verb} resource "${resource}" in API group "" at the cluster scope`,
      );
  }

  #list(query: URLSearchParams): object {
    const limit = Number(query.get("limit") ?? "0");
    const continued = query.get("continue");
    const { version, after } =
      continued === null
        ? { version: this.nodes.version, after: "" }
        : (JSON.parse(Buffer.from(continued, "base64url").toString()) as {
            version: number;
            after: string;
          });
    if (version < this.nodes.compacted)
      throw new Refused(410, "Expired", "The provided continue parameter is too old");
    const [, only] = /^metadata\.name=(.+)$/.exec(query.get("fieldSelector") ?? "") ?? [];
    const rest = this.nodes
      .all()
      .filter(({ metadata: { name } }) => name > after && (only === undefined || name === only));
    const items = limit === 0 ? rest : rest.slice(0, limit);
    const more = rest.length > items.length;
    const last: string = items.at(-1)?.metadata.name ?? "";
    return {
      kind: "NodeList",
      apiVersion: "v1",
      metadata: {
        resourceVersion: String(version),
        ...(more
          ? {
              continue: Buffer.from(JSON.stringify({ version, after: last })).toString("base64url"),
              remainingItemCount: rest.length - items.length,
            }
          : {}),
      },
      items,
    };
  }

  #watch(query: URLSearchParams, response: http.ServerResponse): void {
    const from = query.get("resourceVersion") ?? "";
    if (!/^[0-9]+$/.test(from)) throw new Refused(400, "BadRequest", `invalid version "${from}"`);
    let at = Number(from);
    if (at > this.nodes.version)
      throw new Refused(504, "Timeout", `Timeout: Too large resource version: ${from}`);
    const expired = statusOf(410, "Expired", `too old resource version: ${from}`);
    if (at < this.nodes.compacted && this.expiredAs === "status")
      return answer(response, 410, expired);
    response.writeHead(200, { "content-type": "application/json" });
    response.flushHeaders();
    const send = (event: object): void => this.#send(response, `${JSON.stringify(event)}\n`);
    if (at < this.nodes.compacted) {
      send({ type: "ERROR", object: expired });
      response.end();
      return;
    }
    const look = (): void => {
      if (response.writableEnded) return;
      for (const { type, version, object } of this.nodes.since(at)) {
        at = version;
        send({ type, object });
      }
    };
    const bookmarks = setInterval(() => {
      if (response.writableEnded) return;
      at = Math.max(at, this.nodes.version);
      const metadata = { resourceVersion: String(at), creationTimestamp: null };
      send({ type: "BOOKMARK", object: { kind: "Node", apiVersion: "v1", metadata } });
    }, this.#options.bookmarkMs ?? 60_000);
    if (query.get("allowWatchBookmarks") !== "true") clearInterval(bookmarks);
    const seconds = Number(query.get("timeoutSeconds") ?? "1800");
    const end = setTimeout(() => response.end(), seconds * 1000);
    this.nodes.watchers.add(look);
    this.#watches.add(response);
    response.on("close", () => {
      clearInterval(bookmarks);
      clearTimeout(end);
      this.nodes.watchers.delete(look);
      this.#watches.delete(response);
    });
    look();
  }

  /** In pieces of any size, each a chunk of its own. */
  #send(response: http.ServerResponse, text: string): void {
    const { chunk = (left) => left } = this.#options;
    const bytes = Buffer.from(text);
    for (let from = 0; from < bytes.length; ) {
      const length = Math.max(1, chunk(bytes.length - from));
      response.write(bytes.subarray(from, from + length));
      from += length;
    }
  }
}

/** What a client asks for before it knows which resources there are. */
const discovery: Readonly<Record<string, object>> = {
  "/api": { kind: "APIVersions", versions: ["v1"] },
  "/apis": { kind: "APIGroupList", apiVersion: "v1", groups: [] },
  "/version": { major: "1", minor: "30", gitVersion: "v1.30.0" },
  "/api/v1": {
    kind: "APIResourceList",
    groupVersion: "v1",
    resources: [
      {
        name: "nodes",
        singularName: "node",
        namespaced: false,
        kind: "Node",
        shortNames: ["no"],
        verbs: ["create", "delete", "get", "list", "patch", "watch"],
      },
      { name: "nodes/status", namespaced: false, kind: "Node", verbs: ["patch"] },
    ],
  },
};

function verbOf(method: string, name: string | undefined, watches: boolean): Verb {
  const verbs: Readonly<Record<string, Verb | undefined>> =
    name === undefined
      ? { GET: watches ? "watch" : "list", POST: "create" }
      : { GET: "get", PATCH: "patch", DELETE: "delete" };
  const verb = verbs[method];
  if (verb !== undefined) return verb;
  throw new Refused(405, "MethodNotAllowed", "the server does not allow this method");
}

function answer(response: http.ServerResponse, code: number, body: object): void {
  response.writeHead(code, { "content-type": "application/json" }).end(JSON.stringify(body));
}

const statusOf = (code: number, reason: string, message: string): object => ({
  kind: "Status",
  apiVersion: "v1",
  metadata: {},
  status: "Failure",
  message,
  reason,
  code,
});

function fail404(path: string): never {
  throw new Refused(404, "NotFound", `the server could not find ${path}`);
}

function parsed(body: string): NodePart {
  try {
    return JSON.parse(body) as NodePart;
  } catch {
    throw new Refused(400, "BadRequest", "the body is not JSON");
  }
}
