import type { DescMethod, DescService } from "@bufbuild/protobuf";
import type { ConnectRouter, HandlerContext, MethodImpl, ServiceImpl } from "@connectrpc/connect";
import { toConnectError } from "./codes.ts";
import { strictJson } from "./json.ts";
import { limitsOf } from "./request-limits.ts";

type AnyHandler = (request: unknown, context: HandlerContext) => unknown;

async function* typedStream(
  handler: AnyHandler,
  request: unknown,
  context: HandlerContext,
): AsyncGenerator {
  try {
    yield* handler(request, context) as AsyncIterable<unknown>;
  } catch (thrown) {
    throw toConnectError(thrown);
  }
}

async function typedUnary(
  handler: AnyHandler,
  request: unknown,
  context: HandlerContext,
): Promise<unknown> {
  try {
    return await handler(request, context);
  } catch (thrown) {
    throw toConnectError(thrown);
  }
}

function addMethod(router: ConnectRouter, method: DescMethod, handler: AnyHandler): void {
  const streams =
    method.methodKind === "server_streaming" || method.methodKind === "bidi_streaming";
  const typed: AnyHandler = (request, context) =>
    streams ? typedStream(handler, request, context) : typedUnary(handler, request, context);
  router.rpc(method, typed as MethodImpl<DescMethod>, {
    jsonOptions: strictJson(method.input),
    readMaxBytes: limitsOf(method).bytes,
  });
}

/**
 * Adds a service to a router, as podnet serves all of its own: unknown JSON fields are refused,
 * requests are bounded, and whatever the implementation throws travels as a status with
 * `ErrorInfo`.
 */
export function addService<S extends DescService>(
  router: ConnectRouter,
  service: S,
  implementation: Partial<ServiceImpl<S>>,
): void {
  const handlers = implementation as Readonly<Record<string, AnyHandler | undefined>>;
  for (const method of service.methods) {
    const handler = handlers[method.localName];
    // Bound, so that implementations may be classes.
    if (handler !== undefined) addMethod(router, method, handler.bind(implementation));
  }
}
