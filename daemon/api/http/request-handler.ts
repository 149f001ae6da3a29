import type { ServerResponse } from "node:http";
import type { DescMethod } from "@bufbuild/protobuf";
import {
  Code,
  type ConnectRouter,
  createConnectRouter,
  createContextKey,
  createContextValues,
  type HandlerContext,
  type Interceptor,
} from "@connectrpc/connect";
import {
  universalRequestFromNodeRequest,
  universalResponseToNodeResponse,
} from "@connectrpc/connect-node";
import type { UniversalHandler } from "@connectrpc/connect/protocol";
import { errorToJsonBytes } from "@connectrpc/connect/protocol-connect";
import { checkedBody } from "../../../api/validate/checked-body.ts";
import { connectCodes, toConnectError } from "../../../api/codes.ts";
import { type Role, roleFor } from "../../../api/roles.ts";
import { shownAnswers } from "../../../api/shown-answers.ts";
import { PodnetError, toPodnetError } from "../../../core/errors.ts";
import { guard } from "../../../core/guard.ts";
import type { ApiLimits } from "../../config/limits.ts";
import { demand } from "../../listeners/access.ts";
import { answeredKey } from "./answered.ts";
import { arriving } from "./arriving.ts";
import { type Caller, callerKey } from "../../listeners/callers.ts";
import type { HealthAnswer, HealthPage } from "./health-pages.ts";
import { isBinaryStream, OwnMessages, ownMessagesKey } from "./own-messages.ts";
import { peerKey } from "../../listeners/peer.ts";
import type { Request, Response } from "../../listeners/http.ts";
import { reasonOf } from "../../listeners/refusal-reason.ts";
import { checkHeaders, hasLargeHeaders, headerBytes, wrongRequest } from "./request-headers.ts";
import { endingAfter, followRest, type RequestRest } from "./request-rest.ts";
import { unread } from "./unread.ts";

export interface RequestHandlerOptions {
  routes(router: ConnectRouter): void;
  /** The answer to `GET /metrics`, in Prometheus' text format. */
  metrics(): Promise<{ readonly type: string; readonly text: string }>;
  /** The answer to `GET /healthz` and `GET /readyz`: 503 unless healthy. */
  health(page: HealthPage): Promise<HealthAnswer>;
  callerOf(request: Request): Caller;
  /** Notified of everything refused or cut, by a reason from a small set. */
  refused(reason: string): void;
  readonly limits: ApiLimits;
  /** Around each call of a method. */
  readonly interceptors?: readonly Interceptor[];
  /** Answers paths that are no methods, instead of the metrics and the health pages. */
  plain?(request: PlainRequest): Promise<void>;
  /** The least role that may call a method; unless given, as podnet's API has it. */
  roleFor?(method: DescMethod): Role;
  /** Texts of answers are sent as they are. */
  readonly verbatim?: boolean;
  readonly ending: AbortSignal;
}

/** A request for a path that is no method. */
export interface PlainRequest {
  readonly request: Request;
  readonly response: Response;
  readonly caller: Caller;
  /** Why this very request is refused. */
  readonly refusal: PodnetError | undefined;
  /** Resolves when the request is over: its answer is sent, or its caller has gone. */
  readonly closed: Promise<void>;
  readonly rest: RequestRest;
}

/** Why this very request is refused; the gate reports it in the caller's protocol. */
const refusalKey = createContextKey<PodnetError | undefined>(undefined, {
  description: "why the request is refused",
});

/**
 * Answers requests of either HTTP: methods of the services and `GET /metrics`. Each is counted
 * against its caller, and takes its role, before anything of its body is read. Never throws,
 * whatever the request.
 */
export function requestHandler(
  options: RequestHandlerOptions,
): (request: Request, response: Response) => void {
  const router = createConnectRouter({
    shutdownSignal: options.ending,
    // Nothing is compressed: a small body cannot unpack to a large one, and no time is spent on it
    // over a unix socket.
    acceptCompression: [],
    interceptors: [
      ...(options.interceptors ?? []),
      ...(options.verbatim === true ? [] : [shownAnswers]),
    ],
    requestGate: (context) => gate(context, options),
  });
  options.routes(router);
  const handlers = new Map(router.handlers.map((each) => [each.requestPath, each]));
  return (request, response) => {
    // A client that went away meanwhile must not end the daemon.
    (response as ServerResponse).on("error", () => {});
    const handler = handlers.get(request.url?.split("?", 1)[0] ?? "");
    const caller = options.callerOf(request);
    const closed = new Promise<void>((resolve) =>
      (response as ServerResponse).once("close", resolve),
    );
    const whole =
      handler !== undefined &&
      !["client_streaming", "bidi_streaming"].includes(handler.method.methodKind);
    const rest = followRest(request, response, {
      promised: whole || request.headers["content-length"] !== undefined,
      requestMs: options.limits.requestMs,
    });
    let refusal: PodnetError | undefined;
    try {
      const place = caller.request();
      void closed.then(() => place[Symbol.dispose]());
    } catch (thrown) {
      refusal = toPodnetError(thrown);
    }
    const drop = (): void => void (response as ServerResponse).destroy();
    const refuse = (reason: string, status: number, text: string): void => {
      options.refused(reason);
      const say = async (): Promise<void> => {
        await rest.ended();
        sendText(response, status, text);
      };
      void guard("api", say, drop);
    };
    if (hasLargeHeaders(request)) {
      refuse("headers", 431, `The headers have more than ${headerBytes} bytes\n`);
      return;
    }
    if (handler === undefined) {
      const plain = { request, response, caller, refusal, closed, rest };
      void guard("api", () => options.plain?.(plain) ?? answerPlain(plain, options), drop);
      return;
    }
    if (!URL.canParse(request.url ?? "", `http://${authority(request)}`)) {
      refuse("bad_request", 400, "The Host header or :authority is missing or no host's name\n");
      return;
    }
    const context = createContextValues()
      .set(peerKey, caller.peer)
      .set(callerKey, caller)
      .set(refusalKey, refusal)
      .set(answeredKey, (then) => void closed.then(then));
    void answer(handler, request, response, { options, context, caller, closed, whole, rest });
  };
}

// HTTP/1.0 and HTTP/2 requests may lack it; Connect 2.2.0 throws then, where the error is not
// caught.
const authority = (request: Request): string =>
  ("authority" in request ? request.authority : request.headers.host) ?? "[";

async function answer(
  handler: UniversalHandler,
  request: Request,
  response: Response,
  {
    options: { limits, refused },
    context,
    caller,
    closed,
    whole,
    rest,
  }: {
    readonly options: RequestHandlerOptions;
    readonly context: ReturnType<typeof createContextValues>;
    readonly caller: Caller;
    readonly closed: Promise<void>;
    /** Whether the request has one message. */
    readonly whole: boolean;
    readonly rest: RequestRest;
  },
): Promise<void> {
  try {
    boundTimeout(request);
    const asked = universalRequestFromNodeRequest(request, response, undefined, context);
    // Not `asked.body`: to stop reading it destroys the request, whose rest could not be thrown
    // away then.
    const chunks: AsyncIterable<Uint8Array> = request.iterator({ destroyOnReturn: false });
    const body = arriving(chunks, {
      ms: limits.requestMs,
      whole,
      over: Promise.race([closed, rest.answered]),
      late: () => {
        refused("slow_request");
        return toConnectError(tooSlow(limits.requestMs));
      },
    });
    const type = request.headers["content-type"] ?? "";
    const own =
      handler.method.methodKind === "bidi_streaming" && isBinaryStream(type)
        ? new OwnMessages(response)
        : undefined;
    context.set(ownMessagesKey, own);
    const answered = await handler({
      ...asked,
      body: checkedBody(body, type, handler.method, { turn: () => caller.turn(closed), refused }),
    });
    // A caller that sees a refusal stops sending, without ending its request (curl does).
    if (answered.status >= 400) await rest.ended();
    if (answered.status >= 400 && answered.body === undefined) {
      refused("bad_request");
      const error = errorToJsonBytes(toConnectError(wrongRequest(answered.status)), undefined);
      sendText(response, answered.status, Buffer.from(error).toString(), "application/json");
      return;
    }
    const all =
      answered.body === undefined || own === undefined ? answered.body : own.among(answered.body);
    const guarded = unread(endingAfter(all, rest), response, limits.stallMs, () =>
      refused("slow_reader"),
    );
    await universalResponseToNodeResponse({ ...answered, body: guarded }, response);
  } catch {
    // The caller has gone, or broke the protocol below HTTP: an answer would not reach it.
  }
}

/**
 * Node's timers hold 2^31 - 1 ms and fire at once beyond; a caller who gives more time than that,
 * 24 days, gives no limit. Connect 2.2.0 sets the timer even when its own `maxTimeoutMs` refuses
 * the header.
 */
function boundTimeout({ headers }: Request): void {
  // grpc.github.io, "PROTOCOL-HTTP2": eight digits and a unit; only hours and minutes come that
  // far.
  const [, hours, minutes] =
    /^0*(\d{1,8})H$|^0*(\d{1,8})M$/.exec(String(headers["grpc-timeout"])) ?? [];
  if (Number(hours) > 500 || Number(minutes) > 30_000) delete headers["grpc-timeout"];
  if (Number(headers["connect-timeout-ms"]) > 2 ** 31 - 1) delete headers["connect-timeout-ms"];
}

const tooSlow = (ms: number): PodnetError =>
  new PodnetError("DEADLINE_EXCEEDED", `The request did not arrive within ${ms} ms`, {
    hint: "Send it faster, or raise limits.request_s",
  });

/** Lets a call through, or throws its refusal as the caller's protocol sends it. */
function gate(context: HandlerContext, options: RequestHandlerOptions): void {
  const { refused, roleFor: roleOf = roleFor } = options;
  const caller = context.values.get(callerKey);
  const peer = context.values.get(peerKey);
  try {
    const refusal = context.values.get(refusalKey);
    if (refusal !== undefined) throw refusal;
    const { method } = context;
    demand(peer, caller?.role, roleOf(method), `${method.parent.name}.${method.name}`);
    checkHeaders(context);
  } catch (thrown) {
    refused(reasonOf(toPodnetError(thrown)));
    throw toConnectError(thrown);
  }
}

const statuses: Readonly<Partial<Record<Code, number>>> = {
  [Code.Unauthenticated]: 401,
  [Code.PermissionDenied]: 403,
  [Code.ResourceExhausted]: 429,
};

const healthPages: ReadonlyMap<string, HealthPage> = new Map([
  ["/healthz", "healthz"],
  ["/readyz", "readyz"],
]);

/** Answers paths that are not methods: the metrics, the health pages, or nothing. */
async function answerPlain(
  { request, response, caller, refusal, rest }: PlainRequest,
  options: RequestHandlerOptions,
): Promise<void> {
  await rest.ended();
  try {
    if (refusal !== undefined) throw refusal;
    demand(caller.peer, caller.role, "viewer", "What is served here");
    const page = request.method === "GET" ? healthPages.get(request.url ?? "") : undefined;
    if (page !== undefined) {
      const { ok, text } = await options.health(page);
      sendText(response, ok ? 200 : 503, text);
      return;
    }
    if (request.url !== "/metrics" || request.method !== "GET") {
      sendText(response, 404, "There is no such method\n");
      return;
    }
    const { type, text } = await options.metrics();
    sendText(response, 200, text, type);
  } catch (thrown) {
    const error = toPodnetError(thrown);
    const status = statuses[connectCodes[error.code]] ?? 500;
    if (status !== 500) options.refused(reasonOf(error));
    sendText(response, status, status === 500 ? "" : `${error.code}: ${error.message}\n`);
  }
}

function sendText(to: Response, status: number, text: string, type = "text/plain"): void {
  // HTTP/2's response has the same methods with signatures of its own.
  const response = to as ServerResponse;
  response.writeHead(status, { "content-type": type });
  response.end(text);
}
