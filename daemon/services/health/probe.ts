import { connect, type Socket } from "node:net";
import { familyOf, type Ip } from "../../../core/address.ts";
import { perform } from "../../../core/effect.ts";
import { guarded } from "../../../core/guard.ts";

export interface ProbeTarget {
  readonly address: Ip;
  readonly port: number;
  /** What is asked for by HTTP. Absent: a connection is enough. */
  readonly path?: string;
  readonly timeoutS: number;
}

/** The length of `HTTP/1.1 200`: nothing after it is read. */
const statusLength = 12;

/**
 * Asks a backend once. Answers why it is not as it should be, or undefined; never throws. A backend
 * may be hostile: nothing but the first bytes of its answer is looked at, no redirect is followed,
 * and all of it together takes no longer than the timeout.
 */
export function probe(target: ProbeTarget, signal: AbortSignal): Promise<string | undefined> {
  const { address, port, path, timeoutS } = target;
  const { promise, resolve } = Promise.withResolvers<string | undefined>();
  let socket: Socket;
  try {
    socket = perform("socket", "connect to a backend", () =>
      connect({ host: address, port, noDelay: true }),
    );
  } catch (thrown) {
    return Promise.resolve(failure(thrown));
  }
  const answer = (why?: string): void => {
    clearTimeout(timeout);
    signal.removeEventListener("abort", stop);
    socket.destroy();
    resolve(why);
  };
  const stop = (): void => answer("the check was ended");
  const timeout = setTimeout(
    guarded("services", () => answer(`no answer within ${timeoutS} s`)),
    timeoutS * 1000,
  );
  signal.addEventListener("abort", stop, { once: true });
  socket.on(
    "error",
    guarded("services", (error: Error) => answer(failure(error))),
  );
  socket.once(
    "connect",
    guarded("services", () => {
      if (path === undefined) answer();
      else socket.write(requestFor(address, port, path));
    }),
  );
  if (path === undefined) return promise;
  let said = "";
  socket.on(
    "data",
    guarded("services", (chunk: Buffer) => {
      said += chunk.subarray(0, statusLength - said.length).toString("latin1");
      if (said.length >= statusLength) answer(faultOf(said));
    }),
  );
  socket.once(
    "end",
    guarded("services", () => answer("it ended the connection before it had answered")),
  );
  return promise;
}

const failure = (thrown: unknown): string =>
  `connection failed: ${(thrown as NodeJS.ErrnoException).code ?? (thrown as Error).message}`;

function requestFor(address: Ip, port: number, path: string): string {
  const host = familyOf(address) === 4 ? address : `[${address}]`;
  return [
    `GET ${path} HTTP/1.1`,
    `Host: ${host}:${port}`,
    "User-Agent: podnet",
    "Accept: */*",
    "Connection: close",
    "\r\n",
  ].join("\r\n");
}

/** What is wrong with the beginning of an answer. Pure. */
function faultOf(said: string): string | undefined {
  const [, status] = /^HTTP\/1\.[01] ([1-5][0-9]{2})$/.exec(said) ?? [];
  if (status === undefined) return "its answer is no HTTP";
  return status >= "200" && status < "400" ? undefined : `it answered with status ${status}`;
}
