import type { IncomingMessage, ServerResponse } from "node:http";
import { createContextValues } from "@connectrpc/connect";
import { PodService } from "../../api/gen/podnet/v1/pod_service_pb.ts";
import { limitsOf } from "../../api/request-limits.ts";
import { isPodnetError, PodnetError } from "../../core/errors.ts";
import { guard, guarded } from "../../core/guard.ts";
import type { PlainRequest } from "../api/http/request-handler.ts";
import type { ApiLimits } from "../config/limits.ts";
import { demand } from "../listeners/access.ts";
import { callerKey } from "../listeners/callers.ts";
import { peerKey } from "../listeners/peer.ts";
import { reasonOf } from "../listeners/refusal-reason.ts";
import { type Answer, errorAnswer, plain } from "./answers.ts";
import { findRoute, readTarget, type Route } from "./routes.ts";

export interface RestOptions {
  readonly routes: readonly Route[];
  readonly limits: ApiLimits;
  /** Notified of everything refused or cut, by a reason from a small set. */
  refused(reason: string): void;
}

/** As large as a create of podnet's own API. */
const mostBytes = limitsOf(PodService.method.create).bytes;

/** Answers requests of hyperd's REST API. */
export const restHandler =
  (options: RestOptions) =>
  async (asked: PlainRequest): Promise<void> => {
    const { request, response } = asked;
    if ("stream" in request) {
      await asked.rest.ended();
      send(response as ServerResponse, plain("hyperd's API is HTTP/1.1\n", 400), options);
      return;
    }
    const gone = new AbortController();
    void asked.closed.then(() => gone.abort());
    let answer: Answer;
    try {
      answer = await answerOf(asked, request, gone.signal, options);
    } catch (thrown) {
      answer = failed(thrown, options);
      // A caller that sees a refusal stops sending, without ending its request.
      await asked.rest.ended();
    }
    send(response as ServerResponse, answer, options);
  };

/** Carries out a request. Throws what it is refused with. */
async function answerOf(
  { caller, refusal, closed, rest }: PlainRequest,
  request: IncomingMessage,
  signal: AbortSignal,
  { routes }: RestOptions,
): Promise<Answer> {
  if (refusal !== undefined) throw refusal;
  const { path, query } = readTarget(request.url ?? "");
  const found = findRoute(routes, request.method ?? "", path);
  if (found === undefined) {
    await rest.ended();
    return plain(`404 page not found\n`, 404);
  }
  const { route, open } = found;
  demand(caller.peer, caller.role, route.role, `${route.method} ${route.path}`);
  return await route.answer({
    query,
    open,
    type: request.headers["content-type"] ?? "",
    body: async () => {
      const bytes = await readBody(request);
      await caller.turn(closed);
      return bytes.toString("utf8");
    },
    context: {
      values: createContextValues().set(peerKey, caller.peer).set(callerKey, caller),
      signal,
    },
  });
}

/** An error's answer. One that is not podnet's is a defect, which is reported. */
function failed(thrown: unknown, { refused }: RestOptions): Answer {
  if (!isPodnetError(thrown)) {
    guard("api", (): void => {
      throw thrown;
    });
    return plain("podnetd failed: see its log\nINTERNAL\n", 500);
  }
  const { code } = thrown;
  if (code === "PERMISSION_DENIED" || code === "UNAUTHENTICATED" || code === "LIMIT_REACHED")
    refused(reasonOf(thrown));
  return errorAnswer(thrown);
}

async function readBody(request: IncomingMessage): Promise<Buffer> {
  if (Number(request.headers["content-length"]) > mostBytes) throw tooLarge();
  const chunks: Buffer[] = [];
  let length = 0;
  const parts: AsyncIterable<Buffer> = request.iterator({ destroyOnReturn: false });
  try {
    for await (const chunk of parts) {
      length += chunk.length;
      if (length > mostBytes) throw tooLarge();
      chunks.push(chunk);
    }
  } catch (thrown) {
    if (isPodnetError(thrown)) throw thrown;
    // Its caller has gone, and reads no answer.
    throw new PodnetError("CANCELLED", "The request ended within its body", { cause: thrown });
  }
  return Buffer.concat(chunks);
}

const tooLarge = (): PodnetError =>
  new PodnetError("LIMIT_REACHED", `A request's body may have ${mostBytes} bytes`, {
    hint: "Send less at once",
    details: { limit: "request_bytes" },
  });

/** Sends an answer. One that is not read in time cuts its caller's connection. */
function send(response: ServerResponse, answer: Answer, { limits, refused }: RestOptions): void {
  const cut = (): void => {
    refused("slow_reader");
    response.destroy();
  };
  const timer = setTimeout(guarded("api", cut), limits.stallMs).unref();
  for (const event of ["finish", "close"] as const) response.once(event, () => clearTimeout(timer));
  const body = Buffer.from(answer.body);
  if (answer.status === 204) response.writeHead(204).end();
  else
    response
      .writeHead(answer.status, {
        "content-type": answer.type,
        "content-length": body.length,
        ...(answer.status >= 400 ? { "x-content-type-options": "nosniff" } : {}),
      })
      .end(body);
}
