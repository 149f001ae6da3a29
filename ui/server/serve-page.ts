/**
 * Serves podnet's page on 127.0.0.1: its files, and those calls of the API that it makes, with the
 * rights of who started it.
 */
import { readFileSync } from "node:fs";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import path from "node:path";
import { fromJson, type JsonValue, type Message, toJson } from "@bufbuild/protobuf";
import type { Podnet } from "../../api/client.ts";
import { toErrorInfo } from "../../api/codes.ts";
import { ErrorInfoSchema } from "../../api/gen/podnet/v1/error_pb.ts";
import { isPodnetError, PodnetError, toPodnetError } from "../../core/errors.ts";
import { Access } from "./access.ts";
import { type Call, calls } from "./calls.ts";

/**
 * Where scripts/build-programs puts the page's files. Asked when it is needed: the command may be a
 * snapshot, made elsewhere.
 */
const built = (): string => path.join(import.meta.dirname, "../../build/programs/ui");

const files = {
  "/": ["index.html", "text/html; charset=utf-8"],
  "/page.js": ["page.js", "text/javascript; charset=utf-8"],
  "/page.css": ["page.css", "text/css; charset=utf-8"],
  "/icon.svg": ["icon.svg", "image/svg+xml"],
} as const;

/** Nothing is loaded from elsewhere, nothing is embedded elsewhere, no script of a text runs. */
const headers = {
  "content-security-policy":
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
  "cross-origin-opener-policy": "same-origin",
  "cross-origin-resource-policy": "same-origin",
  "referrer-policy": "no-referrer",
  "x-content-type-options": "nosniff",
  "cache-control": "no-store",
} as const;

/** Most bytes of a request, and most streams at a time: one page has four. */
const most = { requestBytes: 64 * 1024, streams: 32 } as const;

export interface PageOptions {
  readonly podnet: Podnet;
  /** A port of 127.0.0.1, 0 for a free one, or the path of a unix socket that is made. */
  readonly listen: number | string;
  /** Whether the page may start, stop, pause and resume pods. */
  readonly allowChanges: boolean;
}

export interface ServedPage extends AsyncDisposable {
  /** Where the page is opened, once. */
  readonly url: string;
}

/** Serves the page until disposed. Throws `PORT_IN_USE`, and `UNSUPPORTED` when it is not built. */
export async function servePage(options: PageOptions): Promise<ServedPage> {
  const contents = readPage();
  let port: number | undefined = typeof options.listen === "number" ? options.listen : undefined;
  // (To a socket a port of any number may be forwarded.)
  const access = new Access((host) => {
    const found = /^(?:127\.0\.0\.1|localhost)(?::(\d+))?$/.exec(host);
    return found !== null && (port === undefined || found[1] === `${port}`);
  });
  const open = new Set<AbortController>();
  const server = createServer((request, response) => {
    const stop = new AbortController();
    open.add(stop);
    response.once("close", () => {
      open.delete(stop);
      stop.abort();
    });
    for (const [name, value] of Object.entries(headers)) response.setHeader(name, value);
    answer(
      request,
      response,
      { ...options, contents, access, streams: open.size },
      stop.signal,
    ).catch((thrown: unknown) => fail(response, toPodnetError(thrown)));
  });
  server.headersTimeout = 10_000;
  await listen(server, options.listen);
  if (port !== undefined) port = (server.address() as AddressInfo).port;
  return {
    url: `http://127.0.0.1:${port ?? "PORT"}/?token=${access.token}`,
    [Symbol.asyncDispose]: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        for (const stop of open) stop.abort();
        server.closeAllConnections();
      }),
  };
}

function readPage(): ReadonlyMap<string, readonly [Buffer, string]> {
  try {
    return new Map(
      Object.entries(files).map(([url, [name, type]]) => [
        url,
        [readFileSync(path.join(built(), name)), type],
      ]),
    );
  } catch (cause) {
    throw new PodnetError("UNSUPPORTED", "The page is not built", {
      hint: "Run ./scripts/setup in the checkout, or install podnet's package",
      cause,
    });
  }
}

function listen(server: ReturnType<typeof createServer>, where: number | string): Promise<void> {
  const name = typeof where === "number" ? `Port ${where} of 127.0.0.1` : `"${where}"`;
  return new Promise((resolve, reject) => {
    server.once("error", (cause: NodeJS.ErrnoException) =>
      reject(
        new PodnetError("PORT_IN_USE", `${name} cannot be used (${cause.code})`, {
          field: typeof where === "number" ? "port" : "listen",
          hint:
            typeof where === "number"
              ? "Choose another with --port, or leave it out"
              : "Name a file that does not exist, in a directory of yours",
          cause,
        }),
      ),
    );
    if (typeof where === "number") {
      server.listen({ host: "127.0.0.1", port: where }, resolve);
      return;
    }
    // Others may not even ask for the page. (The socket is made before listen returns.)
    const before = process.umask(0o177);
    server.listen(where, resolve);
    process.umask(before);
  });
}

interface Serving extends PageOptions {
  readonly contents: ReadonlyMap<string, readonly [Buffer, string]>;
  readonly access: Access;
  readonly streams: number;
}

async function answer(
  request: IncomingMessage,
  response: ServerResponse,
  serving: Serving,
  signal: AbortSignal,
): Promise<void> {
  const { access, contents } = serving;
  const url = new URL(request.url ?? "/", "http://page");
  const token = url.searchParams.get("token");
  if (url.pathname === "/" && token !== null && access.isAddressed(request)) {
    const cookie = access.open(token);
    if (cookie !== undefined) response.setHeader("set-cookie", cookie);
    // (The page takes the token out of its address. A used token opens nothing.)
    else if (access.refusal(request) !== undefined)
      return sendText(response, 403, "This address was used already: run podnet ui again\n");
    return sendFile(response, contents.get("/"), access.path);
  }
  const refused = access.refusal(request);
  if (refused !== undefined) return sendText(response, 403, `${refused}\n`);
  if (!url.pathname.startsWith(access.path)) return sendText(response, 404, "Not found\n");
  const name = url.pathname.slice(access.path.length - 1);
  const call = calls.get(name);
  if (call !== undefined) return pass(call, url, request, response, serving, signal);
  if (request.method === "GET" && name === "/allowed")
    return sendJson(response, 200, { changes: serving.allowChanges });
  const file = request.method === "GET" ? contents.get(name) : undefined;
  return file === undefined
    ? sendText(response, 404, "Not found\n")
    : sendFile(response, file, access.path);
}

/** Passes a call on: a POST for one answer, a GET for a stream of events (text/event-stream). */
async function pass(
  call: Call,
  url: URL,
  request: IncomingMessage,
  response: ServerResponse,
  { podnet, allowChanges, streams }: Serving,
  signal: AbortSignal,
): Promise<void> {
  const { method, changes, make } = call;
  const isStream = method.methodKind === "server_streaming";
  if (request.method !== (isStream ? "GET" : "POST"))
    return sendText(response, 405, "The method is not allowed\n");
  if (changes && !allowChanges)
    throw new PodnetError("PERMISSION_DENIED", "The page may only look", {
      hint: "Run: podnet ui --allow-changes",
    });
  if (isStream && streams > most.streams)
    throw new PodnetError("LIMIT_REACHED", `${most.streams} streams are open already`, {
      hint: "Close other windows of the page",
    });
  const text = isStream ? (url.searchParams.get("request") ?? "{}") : await bodyOf(request);
  const asked = make(podnet, fromJson(method.input, parsed(text)), signal);
  if (!isStream) return sendJson(response, 200, toJson(method.output, (await asked) as Message));
  response.writeHead(200, { "content-type": "text/event-stream" });
  response.flushHeaders();
  try {
    for await (const each of asked as AsyncIterable<Message>)
      await write(response, `data: ${JSON.stringify(toJson(method.output, each))}\n\n`, signal);
    response.end("event: end\ndata: {}\n\n");
  } catch (thrown) {
    const error = toPodnetError(thrown);
    response.end(`event: failure\ndata: ${JSON.stringify(wireOf(error))}\n\n`);
  }
}

function parsed(text: string): JsonValue {
  try {
    return JSON.parse(text) as JsonValue;
  } catch (cause) {
    throw new PodnetError("INVALID_ARGUMENT", "The request is not JSON", { cause });
  }
}

/** Writes, and waits while the browser does not read. */
async function write(response: ServerResponse, text: string, signal: AbortSignal): Promise<void> {
  if (response.write(text) || signal.aborted) return;
  await new Promise<void>((resolve) => {
    const done = (): void => {
      response.off("drain", done);
      signal.removeEventListener("abort", done);
      resolve();
    };
    response.once("drain", done);
    signal.addEventListener("abort", done, { once: true });
  });
}

async function bodyOf(request: IncomingMessage): Promise<string> {
  const parts: Buffer[] = [];
  let bytes = 0;
  for await (const part of request as AsyncIterable<Buffer>) {
    bytes += part.length;
    if (bytes > most.requestBytes)
      throw new PodnetError("LIMIT_REACHED", `A request has at most ${most.requestBytes} bytes`);
    parts.push(part);
  }
  return Buffer.concat(parts).toString();
}

const wireOf = (error: PodnetError): JsonValue => toJson(ErrorInfoSchema, toErrorInfo(error));

function fail(response: ServerResponse, error: PodnetError): void {
  if (response.headersSent) return void response.destroy();
  const status = isPodnetError(error, "PERMISSION_DENIED") ? 403 : 400;
  sendJson(response, status, wireOf(error));
}

function sendJson(response: ServerResponse, status: number, body: JsonValue): void {
  response.writeHead(status, { "content-type": "application/json" });
  response.end(JSON.stringify(body));
}

function sendText(response: ServerResponse, status: number, text: string): void {
  response.writeHead(status, { "content-type": "text/plain; charset=utf-8" });
  response.end(text);
}

function sendFile(
  response: ServerResponse,
  file: readonly [Buffer, string] | undefined,
  place: string,
): void {
  if (file === undefined) return sendText(response, 404, "Not found\n");
  const [contents, type] = file;
  response.writeHead(200, { "content-type": type });
  // The document names the other files, wherever it is itself.
  const isDocument = type.startsWith("text/html");
  response.end(isDocument ? contents.toString().replaceAll('"./', `"${place}`) : contents);
}
