import { once } from "node:events";
import * as http from "node:http";
import * as https from "node:https";
import { performAsync } from "../core/effect.ts";
import { guarded } from "../core/guard.ts";
import type { Access, Credentials } from "./access.ts";
import { connectionError, kubernetesError } from "./errors.ts";

/** One request to an API server. */
export interface Request {
  readonly method: "GET" | "PATCH";
  /** Such as `/api/v1/nodes`. */
  readonly path: string;
  readonly query?: Readonly<Record<string, string>>;
  readonly contentType?: string;
  readonly body?: string;
  /** Names the request in failpoints: `list nodes`. */
  readonly what: string;
}

/**
 * Sends a request, and resolves to the answer with its body still to be read. Throws
 * `KUBERNETES_UNREACHABLE`, `KUBERNETES_DENIED`. Each request has a connection of its own: there
 * are few, and one that was kept open may be gone when it is needed.
 */
export function send(
  access: Access,
  credentials: Credentials,
  request: Request,
  { answerMs, signal }: { readonly answerMs: number; readonly signal: AbortSignal },
): Promise<http.IncomingMessage> {
  return performAsync(
    "kubernetes",
    request.what,
    async () => {
      try {
        return await answerOf(access, credentials, request, answerMs, signal);
      } catch (thrown) {
        throw connectionError(thrown, access.server.host);
      }
    },
    () => signal,
  );
}

async function answerOf(
  access: Access,
  { token, ca, cert, key }: Credentials,
  { method, path, query = {}, contentType, body }: Request,
  answerMs: number,
  signal: AbortSignal,
): Promise<http.IncomingMessage> {
  const url = new URL(access.server);
  url.pathname = `${url.pathname.replace(/\/$/, "")}${path}`;
  url.search = new URLSearchParams(query).toString();
  const headers = {
    accept: "application/json",
    "user-agent": "podnetd",
    ...(token === undefined ? {} : { authorization: `Bearer ${token}` }),
    ...(contentType === undefined ? {} : { "content-type": contentType }),
    ...(body === undefined ? {} : { "content-length": Buffer.byteLength(body) }),
  };
  const tls = {
    rejectUnauthorized: !access.insecure,
    ...(access.serverName === undefined ? {} : { servername: access.serverName }),
    ...(ca === undefined ? {} : { ca }),
    ...(cert === undefined ? {} : { cert, key }),
  };
  const options = { method, headers, signal, agent: false };
  const asked =
    url.protocol === "https:"
      ? https.request(url, { ...options, ...tls })
      : http.request(url, options);
  const server = access.server.host;
  const late = setTimeout(
    guarded("kubernetes", () => {
      const message = `Kubernetes' API server at ${server} has not answered within ${answerMs / 1000} s`;
      asked.destroy(kubernetesError("KUBERNETES_UNREACHABLE", message, { details: { server } }));
    }),
    answerMs,
  );
  try {
    asked.end(body);
    const [answer] = (await once(asked, "response")) as [http.IncomingMessage];
    // (After the answer the socket's errors are the body's, which whoever reads it is given.)
    asked.on(
      "error",
      guarded("kubernetes", () => {}),
    );
    return answer;
  } finally {
    clearTimeout(late);
  }
}

/** The text of an answer. Throws `KUBERNETES_UNREACHABLE`; a `TooLarge` beyond `most` bytes. */
export async function textOfAnswer(
  answer: http.IncomingMessage,
  most: number,
  server: string,
): Promise<string> {
  const pieces: Buffer[] = [];
  let length = 0;
  try {
    for await (const piece of answer as AsyncIterable<Buffer>) {
      length += piece.length;
      if (length > most) throw new TooLarge();
      pieces.push(piece);
    }
  } catch (thrown) {
    answer.destroy();
    throw thrown instanceof TooLarge ? thrown : connectionError(thrown, server);
  }
  return Buffer.concat(pieces).toString("utf8");
}

/** An answer has more bytes than it may have. */
export class TooLarge extends Error {}
