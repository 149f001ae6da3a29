import type { IncomingMessage } from "node:http";
import type { Duplex } from "node:stream";
import type { Socket } from "node:net";
import { type PodnetError, toPodnetError } from "../../../core/errors.ts";
import { guard, guarded } from "../../../core/guard.ts";
import { isClosedThere } from "../../../linux/sockets/unix-socket.ts";
import type { Caller } from "../../listeners/callers.ts";

/** A request of HTTP/1.1 whose connection is to be the caller's own from then on. */
export interface UpgradeRequest {
  readonly request: IncomingMessage;
  /** What comes after the request, and where the answer goes. Either end closes its half alone. */
  readonly socket: Socket;
  readonly caller: Caller;
  /** Why this very request is refused. */
  readonly refusal: PodnetError | undefined;
  /** Aborted when the connection is gone, or podnetd ends. */
  readonly signal: AbortSignal;
}

export interface UpgradeOptions {
  upgrade(request: UpgradeRequest): Promise<void>;
  callerOf(request: IncomingMessage): Caller;
  readonly ending: AbortSignal;
}

/** Between two looks whether a caller that sends no more is still there, milliseconds. */
const lookMs = 1000;

/** Hands connections on, each counted against its caller for as long as it is open. */
export function upgradeHandler({ upgrade, callerOf, ending }: UpgradeOptions) {
  return (request: IncomingMessage, stream: Duplex, head: Buffer): void => {
    // Set before the end of the caller's half can be seen, which would end the other half, too.
    stream.allowHalfOpen = true;
    stream.on("error", () => stream.destroy());
    if (head.length > 0) stream.unshift(head);
    const gone = new AbortController();
    const leave = (): void => leaveWithCaller(stream as Socket);
    stream.once("end", guarded("api", leave));
    const caller = callerOf(request);
    let place: Disposable | undefined;
    let refusal: PodnetError | undefined;
    try {
      place = caller.request();
    } catch (thrown) {
      refusal = toPodnetError(thrown);
    }
    stream.once("close", () => {
      place?.[Symbol.dispose]();
      gone.abort();
    });
    const signal = AbortSignal.any([gone.signal, ending]);
    const asked = { request, socket: stream as Socket, caller, refusal, signal };
    void guard(
      "api",
      () => upgrade(asked),
      () => stream.destroy(),
    );
  };
}

/** Closes a connection whose caller has closed its half once it has closed the other one, too. */
function leaveWithCaller(socket: Socket): void {
  const look = (): void => {
    if (isClosedThere(socket)) socket.destroy();
  };
  const drop = (): void => void socket.destroy();
  const timer = setInterval(guarded("api", look, drop), lookMs).unref();
  socket.once("close", () => clearInterval(timer));
}
