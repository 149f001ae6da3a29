import type { IncomingMessage } from "node:http";
import { createContextValues } from "@connectrpc/connect";
import { PodService } from "../../api/gen/podnet/v1/pod_service_pb.ts";
import { limitsOf } from "../../api/request-limits.ts";
import { isPodnetError, PodnetError } from "../../core/errors.ts";
import { guard } from "../../core/guard.ts";
import { demand } from "../listeners/access.ts";
import { type Caller, callerKey } from "../listeners/callers.ts";
import { peerKey } from "../listeners/peer.ts";
import { reasonOf } from "../listeners/refusal-reason.ts";
import { type Answer, errorAnswer, plain } from "./answers.ts";
import { type Call, refuseUnread, type Route } from "./routes.ts";

/** As large as a create of podnet's own API. */
const mostBytes = limitsOf(PodService.method.create).bytes;

interface Asked {
  readonly request: IncomingMessage;
  readonly caller: Caller;
  readonly signal: AbortSignal;
  /** Resolves when the caller has gone. */
  readonly closed: Promise<void>;
}

/** What a route is given of a request, whose caller has its role. Throws `PERMISSION_DENIED`. */
export function callOf(
  { request, caller, signal, closed }: Asked,
  route: Pick<Route, "method" | "path" | "role" | "parameters">,
  { query, open }: Pick<Call, "query" | "open">,
): Call {
  demand(caller.peer, caller.role, route.role, `${route.method} ${route.path}`);
  refuseUnread({ query }, route);
  return {
    query,
    open,
    header: (name) => String(request.headers[name] ?? ""),
    body: async () => {
      const bytes = await readBody(request);
      await caller.turn(closed);
      return bytes.toString("utf8");
    },
    upload: () => request.iterator({ destroyOnReturn: false }) as AsyncIterable<Buffer>,
    context: {
      values: createContextValues().set(peerKey, caller.peer).set(callerKey, caller),
      signal,
    },
  };
}

/** An error's answer. One that is not podnet's is a defect, which is reported. */
export function failed(thrown: unknown, refused: (reason: string) => void): Answer {
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
