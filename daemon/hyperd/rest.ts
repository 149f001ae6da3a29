import type { IncomingMessage, ServerResponse } from "node:http";
import { guarded } from "../../core/guard.ts";
import type { PlainRequest } from "../api/http/request-handler.ts";
import type { ApiLimits } from "../config/limits.ts";
import { type Answer, plain } from "./answers.ts";
import { callOf, failed } from "./calls.ts";
import { findRoute, readTarget, type Route, type StreamRoute } from "./routes.ts";
import { writeAll } from "./write-all.ts";

export interface RestOptions {
  readonly routes: readonly Route[];
  readonly streams: readonly StreamRoute[];
  readonly limits: ApiLimits;
  /** Notified of everything refused or cut, by a reason from a small set. */
  refused(reason: string): void;
}

/** Answers requests of hyperd's REST API. */
export const restHandler =
  (options: RestOptions) =>
  async (asked: PlainRequest): Promise<void> => {
    const { request, rest } = asked;
    const response = asked.response as ServerResponse;
    if ("stream" in request) {
      await rest.ended();
      await send(response, plain("hyperd's API is HTTP/1.1\n", 400), options);
      return;
    }
    const gone = new AbortController();
    void asked.closed.then(() => gone.abort());
    let answer: Answer;
    try {
      answer = await answerOf(asked, request, gone.signal, options);
    } catch (thrown) {
      answer = failed(thrown, options.refused);
      // A caller that sees a refusal stops sending, without ending its request.
      await rest.ended();
    }
    await send(response, answer, options);
  };

/** Carries out a request. Throws what it is refused with. */
async function answerOf(
  { caller, refusal, closed, rest }: PlainRequest,
  request: IncomingMessage,
  signal: AbortSignal,
  { routes, streams }: RestOptions,
): Promise<Answer> {
  if (refusal !== undefined) throw refusal;
  const { method = "" } = request;
  const { path, query } = readTarget(request.url ?? "");
  const found = findRoute(routes, method, path);
  if (found !== undefined) {
    const { route, open } = found;
    return await route.answer(callOf({ request, caller, signal, closed }, route, { query, open }));
  }
  await rest.ended();
  return findRoute(streams, method, path) === undefined
    ? plain("404 page not found\n", 404)
    : plain("This call takes over its connection: send Upgrade: tcp\n", 426);
}

/** Sends an answer. One that is not read in time cuts its caller's connection. */
async function send(
  response: ServerResponse,
  { status, type, body }: Answer,
  { limits, refused }: RestOptions,
): Promise<void> {
  const cut = (): void => {
    refused("slow_reader");
    response.destroy();
  };
  if (typeof body !== "string") {
    response.writeHead(status, { "content-type": type });
    // Before there is any output.
    response.flushHeaders();
    await writeAll(response, body, limits.stallMs, cut);
    response.end();
    return;
  }
  const timer = setTimeout(guarded("api", cut), limits.stallMs).unref();
  for (const event of ["finish", "close"] as const) response.once(event, () => clearTimeout(timer));
  const bytes = Buffer.from(body);
  if (status === 204) response.writeHead(204).end();
  else
    response
      .writeHead(status, {
        "content-type": type,
        "content-length": bytes.length,
        ...(status >= 400 ? { "x-content-type-options": "nosniff" } : {}),
      })
      .end(bytes);
}
