import type { IncomingMessage, ServerResponse } from "node:http";
import type { Http2ServerRequest, Http2ServerResponse } from "node:http2";

/** A request of either HTTP. */
export type Request = IncomingMessage | Http2ServerRequest;
/** An answer of either HTTP. */
export type Response = ServerResponse | Http2ServerResponse;
